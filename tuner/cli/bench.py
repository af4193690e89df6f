"""Options of `tuner bench`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer


class EndpointKind(StrEnum):
    """Endpoint of a running server that receives the load."""

    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"


def bench(
    url: Annotated[str, typer.Option(help="Measure the server at http://host:port.")],
    *,
    endpoint: Annotated[
        EndpointKind,
        typer.Option(help="Load SGLang's own endpoint, or one of OpenAI's that any server has."),
    ] = EndpointKind.GENERATE,
    model: Annotated[
        str | None,
        typer.Option(help="Name the model at the server. [default: the first of /v1/models]"),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Keep this many requests in flight. [default: 1]")
    ] = None,
    request_rate: Annotated[
        float | None,
        typer.Option(help="Send this many requests per second, whatever is in flight."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Send requests at the times in a file, in seconds.")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Count this many requests. [default: 4 per lane, at least 16]"),
    ] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="Start all lanes at once with whole answers.")
    ] = False,
    whole_run: Annotated[
        bool,
        typer.Option(
            "--whole-run", help="Count from the first send to the last token, without a ramp."
        ),
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, help="Measure this many windows; show their mean and interval.")
    ] = 1,
    output_tokens: Annotated[
        int, typer.Option(min=2, max=2**31 - 1, help="Set the mean tokens per answer.")
    ] = 256,
    output_spread: Annotated[
        float | None,
        typer.Option(help="Vary answer lengths by this share of their mean. [default: 0.5]"),
    ] = None,
    natural_length: Annotated[
        bool, typer.Option("--natural-length", help="Let the model end its answers.")
    ] = False,
    temperature: Annotated[
        float, typer.Option(help="Set the sampling temperature; 0 is greedy.")
    ] = 0.0,
    sampling: Annotated[
        list[str] | None,
        typer.Option(help="Set a sampling parameter by SGLang's name (top_p=0.9); repeatable."),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            help="Choose prompts and shares: chat=0.5,jsonl:FILE=0.5, sharegpt:, sglang:."
        ),
    ] = "chat=0.5,code=0.5",
    shared_prefix: Annotated[
        str | None,
        typer.Option(help="Put shared prefixes before the prompts: TOKENS or TOKENS:GROUPS."),
    ] = None,
    goodput: Annotated[
        str | None, typer.Option(help="Set the limits of a good request in ms: ttft:200,tpot:50.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Send this bearer token. [default: $SGLANG_API_KEY, then $OPENAI_API_KEY]"
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            envvar="TUNER_SGLANG_PYTHON",
            help="Use this Python of SGLang's environment for sglang: prompts.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Select prompts, lengths and arrivals.")] = 0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Send from this many processes. [default: as many as needed]"),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Limit one request to this many seconds.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Measure a server that is already running."""
    from tuner.commands import bench, bench_options  # noqa: PLC0415

    options = bench_options.BenchOptions(
        url=url,
        endpoint=endpoint.value,
        model=model,
        concurrency=concurrency,
        request_rate=request_rate,
        trace=trace,
        requests=requests,
        burst=burst,
        whole_run=whole_run,
        repeat=repeat,
        output_tokens=output_tokens,
        output_spread=output_spread,
        natural_length=natural_length,
        temperature=temperature,
        sampling=tuple(sampling or ()),
        prompts=prompts,
        shared_prefix=shared_prefix,
        goodput=goodput,
        api_key=api_key,
        python=python,
        seed=seed,
        processes=processes,
        timeout_s=timeout,
    )
    raise typer.Exit(int(bench.bench(options, as_json=as_json)))
