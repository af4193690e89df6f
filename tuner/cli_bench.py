"""The options of `tuner bench`, as light as `tuner.cli`; the rest is in `tuner.commands.bench`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer


class EndpointKind(StrEnum):
    """What of a running server is loaded."""

    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"


def bench(
    url: Annotated[str, typer.Option(help="A running server: http://host:port.")],
    *,
    endpoint: Annotated[
        EndpointKind,
        typer.Option(help="SGLang's own, or OpenAI's: those of any server."),
    ] = EndpointKind.GENERATE,
    model: Annotated[
        str | None, typer.Option(help="Its name at the server; the first of /v1/models by default.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests in flight; 1 by default.")
    ] = None,
    request_rate: Annotated[
        float | None, typer.Option(help="Instead: requests per second, arriving by themselves.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Instead: a file of arrival times in seconds.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests in the window.")] = None,
    output_tokens: Annotated[
        int, typer.Option(min=2, max=2**31 - 1, help="Tokens per answer.")
    ] = 256,
    natural_length: Annotated[
        bool, typer.Option("--natural-length", help="Let the model end its answers.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.0,
    sampling: Annotated[
        list[str] | None,
        typer.Option(help="A sampling parameter by SGLang's name: top_p=0.9. May be repeated."),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(help="Prompts and shares: chat=0.5,jsonl:FILE=0.5, sharegpt:, sglang:."),
    ] = "chat=0.5,code=0.5",
    shared_prefix: Annotated[
        str | None, typer.Option(help="Prefixes before the prompts: TOKENS or TOKENS:GROUPS.")
    ] = None,
    goodput: Annotated[
        str | None, typer.Option(help="Limits of a good request in ms: ttft:200,tpot:50.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="Bearer token; SGLANG_API_KEY or OPENAI_API_KEY by default."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            envvar="TUNER_SGLANG_PYTHON",
            help="Python of SGLang's environment, for sglang: prompts.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts and arrivals.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Client processes; as many as needed by default.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Measure a server that is running already, once."""
    from tuner.commands import bench, bench_options  # noqa: PLC0415

    options = bench_options.BenchOptions(
        url=url,
        endpoint=endpoint.value,
        model=model,
        concurrency=concurrency,
        request_rate=request_rate,
        trace=trace,
        requests=requests,
        output_tokens=output_tokens,
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
