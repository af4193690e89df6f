"""Command line: options and help of every command. `tuner.commands` has the implementations.

Importing this module must stay cheap, because `tuner --help` pays for it. Each command imports its
implementation when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from tuner.cli import bench, database, export, init
from tuner.cli.options import (
    DEFAULT_STORAGE,
    RUNNERS,
    JsonOption,
    ShownOption,
    StorageOption,
    known_runner,
)
from tuner.errors import CommandError, Exit, copyable, remember
from tuner.loop.interrupts import repeat_dropped
from tuner.planners.registry import AUTO, planner_help, planner_names

app = typer.Typer(
    name="tuner",
    help="Find the fastest SGLang launch command for one model, machine and workload.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


_PLANNER_CHOICES = (AUTO, *planner_names())


def _known_planner(name: str) -> str:
    if name not in _PLANNER_CHOICES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(_PLANNER_CHOICES)}")
    return name


FileOption = Annotated[
    str,
    typer.Option(
        "--study", help="Name of a shipped study (see `tuner spaces`) or path of a study file."
    ),
]
StoredOption = Annotated[
    str, typer.Option("--study", help="Name of a stored study, or path of its study file.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait while another tuner uses this study or these GPUs.")
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
    version: Annotated[  # noqa: ARG001 - the callback prints it
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
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
        str | None,
        typer.Option(
            callback=known_runner,
            metavar=RUNNERS,
            help="Kind of server to start. [default: from the study]",
        ),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    name: Annotated[
        str | None, typer.Option(help="Name of the stored study. [default: from the study file]")
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this many launches. [default: from the study]"),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(help="Stop after this many hours of running time. [default: from the study]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for prompts, search and simulation.")] = 0,
    planner: Annotated[
        str,
        typer.Option(
            callback=_known_planner, metavar="|".join(_PLANNER_CHOICES), help=planner_help()
        ),
    ] = AUTO,
    hot_switch: Annotated[
        bool,
        typer.Option(
            help="Measure several settings on one server where SGLang can switch between them."
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan without launching a server.")
    ] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a study and run it.

    Prints all trials, the verdict and the best launch command.
    """
    from tuner.commands import run as command  # noqa: PLC0415

    _leave(
        command.sweep(
            study,
            runner=runner,
            storage=storage,
            name=name,
            launches=launches,
            hours=hours,
            seed=seed,
            planner=planner,
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
        typer.Option(
            "--take-over",
            help="Take over a study from a dead tuner on another machine.",
        ),
    ] = False,
    wait: WaitOption = False,
    fork: Annotated[
        str | None,
        typer.Option(
            "--fork",
            metavar="NEW",
            help="Create a study of this name that reuses the results that are still valid.",
        ),
    ] = None,
    launches: Annotated[int | None, typer.Option(min=1, help="Launch budget of the fork.")] = None,
    hours: Annotated[
        float | None, typer.Option(help="Budget of the fork in hours of running time.")
    ] = None,
    no_hot_switch: Annotated[
        bool,
        typer.Option(
            "--no-hot-switch",
            help="Launch every setting of the fork separately.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a stored study to its original target.

    Stops servers that a killed run left behind. Refuses if the engine, GPUs, search space or
    workload changed; use --fork to reuse the results that are still valid.
    """
    from tuner.commands import resume as command  # noqa: PLC0415

    _leave(
        command.resume(
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
    trial: Annotated[
        int | None, typer.Option(help="Print everything stored about this trial.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a study: trials, best result, failures with advice."""
    from tuner.commands import show as command  # noqa: PLC0415

    _leave(command.show(study, storage=storage, trial=trial, as_json=as_json))


@app.command()
def explain(
    *,
    study: ShownOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    trial: Annotated[
        int | None,
        typer.Option(help="Trial to explain. [default: the best speculative trial]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain where decoding time goes and what each knob gains."""
    from tuner.commands import explain as command  # noqa: PLC0415

    _leave(command.explain(study, storage=storage, trial=trial, as_json=as_json))


app.command()(export.export)


@app.command()
def validate(
    study: FileOption,
    *,
    sglang: Annotated[
        bool,
        typer.Option(
            help="Ask the study's SGLang installation which configurations it would reject or "
            "change."
        ),
    ] = True,
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU to assume on a machine without one (h100, b200, ...)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a study file and count its legal configurations."""
    from tuner.commands import validate as command  # noqa: PLC0415

    _leave(command.validate(study, as_json=as_json, ask=sglang, gpu=gpu))


@app.command()
def spaces(*, as_json: JsonOption = False) -> None:
    """List the shipped studies."""
    from tuner.commands import validate as command  # noqa: PLC0415

    _leave(command.spaces(as_json=as_json))


app.command()(init.init)
app.command()(bench.bench)
app.add_typer(database.app)


@app.command()
def doctor(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """Check this machine: SGLang, GPUs and database."""
    from tuner.commands import doctor as command  # noqa: PLC0415

    _leave(command.doctor(storage=storage, as_json=as_json))


def _leave(code: Exit) -> None:
    raise typer.Exit(int(code))


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code. Errors become one message on stderr."""
    try:
        with repeat_dropped():
            # With standalone_mode off, Typer returns the exit code.
            code = app(arguments, standalone_mode=False)
    except CommandError as error:
        return _failed(str(error), error.code)
    except KeyboardInterrupt:
        return _failed("interrupted", Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - a message instead of a traceback
        return _unexpected(error)
    finally:
        remember(None)  # --storage belongs to this command line only
    return int(code or Exit.DONE)


def _failed(message: str, code: Exit) -> int:
    if os.environ.get("TUNER_DEBUG"):
        traceback.print_exc()
    sys.stderr.write(f"tuner: {copyable(message)}\n")
    return code


def _unexpected(error: Exception) -> int:
    # Typer's usage errors print themselves.
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    from results.errors import StoreError  # noqa: PLC0415
    from search_spaces.problems import StudyFileError  # noqa: PLC0415
    from search_spaces.space.space import SpaceTooLargeError  # noqa: PLC0415

    if isinstance(error, StudyFileError | StoreError | SpaceTooLargeError):
        return _failed(str(error), Exit.USAGE)
    return _failed(
        f"internal error ({type(error).__name__}: {error}); run `tuner --debug ...` for the "
        "traceback and report it",
        Exit.FAULT,
    )
