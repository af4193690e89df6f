"""The command line: options and help. What the commands do is in `tuner.commands`.

Nothing heavy is imported here: `tuner --help` must feel instant, so each command imports what it
needs when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from enum import StrEnum
from typing import Annotated

import typer

from tuner.cli import (
    bench as cli_bench,
)
from tuner.cli import (
    database as cli_db,
)
from tuner.cli import (
    export as cli_export,
)
from tuner.cli import (
    init as cli_init,
)
from tuner.cli.options import DEFAULT_STORAGE, JsonOption, RunnerKind, ShownOption, StorageOption
from tuner.errors import CommandError, Exit, copyable, remember
from tuner.loop.interrupts import noted

app = typer.Typer(
    name="tuner",
    help="Finds the fastest SGLang launch command for one model, machine and workload.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class PlannerKind(StrEnum):
    """How configurations are chosen."""

    AUTO = "auto"
    EXHAUSTIVE = "exhaustive"
    RANDOM = "random"
    TPE = "tpe"


FileOption = Annotated[
    str, typer.Option("--study", help="A shipped study (`tuner spaces`), or the path of a file.")
]
StoredOption = Annotated[
    str, typer.Option("--study", help="A stored study's name, or the file it was made from.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait for another tuner on this study or these GPUs.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"tuner {version('sglang-tuner')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TUNER_DEBUG", help="Show tracebacks.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Options of every command."""
    if debug:
        os.environ["TUNER_DEBUG"] = "1"


@app.command()
def sweep(
    study: FileOption,
    *,
    runner: Annotated[
        RunnerKind | None, typer.Option(help="Real or simulated servers; the study's by default.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    name: Annotated[
        str | None, typer.Option(help="Store it under another name than the file's.")
    ] = None,
    launches: Annotated[
        int | None, typer.Option(min=1, help="Budget of launches; the study's by default.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Budget of hours at work; the study's by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts, planner and simulation.")] = 0,
    planner: Annotated[
        PlannerKind,
        typer.Option(help="How to search; auto: exhaustive where the budget reaches all points."),
    ] = PlannerKind.AUTO,
    hot_switch: Annotated[
        bool,
        typer.Option(help="Measure in one launch what a running server can be switched to."),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be launched, and launch nothing.")
    ] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a study and run it to its end.

    It prints the table of all trials, the verdict, and the launch command of the best.
    """
    from tuner.commands import run as running  # noqa: PLC0415

    _leave(
        running.sweep(
            study,
            runner=runner.value if runner else None,
            storage=storage,
            name=name,
            launches=launches,
            hours=hours,
            seed=seed,
            planner=planner.value,
            hot_switch=hot_switch,
            dry=dry_run,
            wait=wait,
            as_json=as_json,
        )
    )


@app.command()
def resume(
    study: StoredOption,
    *,
    storage: StorageOption = DEFAULT_STORAGE,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="The tuner that had it, on another machine, is gone."),
    ] = False,
    wait: WaitOption = False,
    fork: Annotated[
        str | None,
        typer.Option(
            "--fork",
            metavar="NEW",
            help="Begin a study of this name with what still holds of it: after a change, or to "
            "go on beyond its target.",
        ),
    ] = None,
    launches: Annotated[int | None, typer.Option(min=1, help="Of the fork: its budget.")] = None,
    hours: Annotated[float | None, typer.Option(help="Of the fork: its hours at work.")] = None,
    no_hot_switch: Annotated[
        bool,
        typer.Option(
            "--no-hot-switch",
            help="Of the fork: a launch per setting, also of those that were measured switched.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a stored study to its original target.

    It first cleans up what a killed run left. It refuses where engine, GPUs, space or workload are
    others than it was measured with, and says which; --fork goes on with what still holds.
    """
    from tuner.commands import resume as resuming  # noqa: PLC0415

    _leave(
        resuming.resume(
            study,
            storage=storage,
            take_over=take_over,
            wait=wait,
            fork=fork,
            launches=launches,
            hours=hours,
            no_hot_switch=no_hot_switch,
            as_json=as_json,
        )
    )


@app.command()
def show(
    *,
    study: ShownOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    trial: Annotated[int | None, typer.Option(help="All that is known of one trial.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a study: its trials, the best, and why others failed."""
    from tuner.commands import show as stored  # noqa: PLC0415

    _leave(stored.show(study, storage=storage, trial=trial, as_json=as_json))


@app.command()
def explain(
    *,
    study: ShownOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    trial: Annotated[
        int | None,
        typer.Option(help="Another one than the best speculative trial at default settings."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a cycle's time goes, and what is worth a launch."""
    from tuner.commands import explain as explaining  # noqa: PLC0415

    _leave(explaining.explain(study, storage=storage, trial=trial, as_json=as_json))


app.command()(cli_export.export)


@app.command()
def validate(
    study: FileOption,
    *,
    sglang: Annotated[
        bool,
        typer.Option(
            help="Ask SGLang, where the study says it is installed, what it would refuse or "
            "rewrite; nothing is launched."
        ),
    ] = True,
    gpu: Annotated[
        str | None,
        typer.Option(help="The GPU that is meant (h100, b200, ...), where there is none here."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a study file, and count its legal configurations."""
    from tuner.commands import validate as study_files  # noqa: PLC0415

    _leave(study_files.validate(study, as_json=as_json, ask=sglang, gpu=gpu))


@app.command()
def spaces(*, as_json: JsonOption = False) -> None:
    """List the shipped studies."""
    from tuner.commands import validate as study_files  # noqa: PLC0415

    _leave(study_files.spaces(as_json=as_json))


app.command()(cli_init.init)
app.command()(cli_bench.bench)
app.add_typer(cli_db.app)


@app.command()
def doctor(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """Check this machine: SGLang, GPUs, the database."""
    from tuner.commands import doctor  # noqa: PLC0415

    _leave(doctor.doctor(storage=storage, as_json=as_json))


def _leave(code: Exit) -> None:
    raise typer.Exit(int(code))


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line; returns its exit code. Errors are one message on stderr."""
    try:
        with noted():
            # Typer hands a command's exit code back as a value here.
            code = app(arguments, standalone_mode=False)
    except CommandError as error:
        return _failed(str(error), error.code)
    except KeyboardInterrupt:
        return _failed("interrupted", Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the last resort: a message instead of a traceback
        return _unexpected(error)
    finally:
        remember(None)  # of this command line alone
    return int(code or Exit.DONE)


def _failed(message: str, code: Exit) -> int:
    if os.environ.get("TUNER_DEBUG"):
        traceback.print_exc()
    sys.stderr.write(f"tuner: {copyable(message)}\n")
    return code


def _unexpected(error: Exception) -> int:
    # Typer's own usage errors know how to show themselves.
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    from results.errors import StoreError  # noqa: PLC0415
    from search_spaces.problems import StudyFileError  # noqa: PLC0415

    if isinstance(error, StudyFileError | StoreError):
        return _failed(str(error), Exit.USAGE)
    return _failed(
        f"an error that nobody expected ({type(error).__name__}: {error}); "
        f"`tuner --debug ...` shows where",
        Exit.FAULT,
    )
