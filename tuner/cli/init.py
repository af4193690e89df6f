"""Options of `tuner init`."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import RUNNERS, JsonOption, known_runner


def init(
    *,
    from_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Today's launch command: quoted, or a file that has it (shell script, Dockerfile, "
            "compose, Kubernetes, systemd), or - for stdin.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Study file to write, or - for stdout. [default: NAME.yaml]"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the study. [default: from the model]")
    ] = (None),
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Value of a variable in the command: MODEL=org/name; repeatable.",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(help="Service, container or program to tune, if the file starts several."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Path or name of the model, without a command.")
    ] = None,
    draft: Annotated[str | None, typer.Option(help="Path or name of the draft model.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Algorithm of the draft: EAGLE3, STANDALONE, ...")
    ] = None,
    tp: Annotated[
        str | None, typer.Option(help="GPUs per server (tp-size), without a command.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPUs, like '8x RTX PRO 6000'. [default: of this machine]")
    ] = None,
    interconnect: Annotated[
        str | None, typer.Option(help="pcie or nvlink. [default: detected]")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option(help="Concurrent requests, one number or several: 1,8.")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Requests per second: 4.")] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Sources: chat,code or chat=0.7,mine.jsonl=0.3.")
    ] = None,
    output_tokens: Annotated[str | None, typer.Option(help="Mean tokens per answer.")] = None,
    ttft_ms: Annotated[
        str | None, typer.Option(help="Limit of the time to first token in ms, 95th percentile.")
    ] = None,
    goodput: Annotated[
        str | None, typer.Option(help="Limits of a good answer in ms: ttft:500,tpot:50.")
    ] = None,
    launches: Annotated[str | None, typer.Option(help="Budget of launches.")] = None,
    hours: Annotated[str | None, typer.Option(help="Budget of hours.")] = None,
    runner: Annotated[
        str,
        typer.Option(
            callback=known_runner,
            metavar=RUNNERS,
            help="Kind of server; simulated tries the tuner without GPUs.",
        ),
    ] = "sglang",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Use the defaults without questions.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a study file, from today's launch command.

    Where there is none, a few answers do.
    """
    from tuner.commands import init as command  # noqa: PLC0415

    options = command.InitOptions(
        from_command=from_command,
        output=output,
        force=force,
        name=name,
        runner=runner,
        sets=tuple(set_ or ()),
        service=service,
        yes=yes,
        given={
            "model": model,
            "draft": draft,
            "algorithm": algorithm,
            "tp": tp,
            "gpus": gpus,
            "interconnect": interconnect,
            "concurrency": concurrency,
            "rate": rate,
            "prompts": prompts,
            "output-tokens": output_tokens,
            "ttft-ms": ttft_ms,
            "goodput": goodput,
            "launches": launches,
            "hours": hours,
        },
    )
    raise typer.Exit(int(command.init(options, as_json=as_json)))
