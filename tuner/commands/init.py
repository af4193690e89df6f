"""`tuner init`: create a study file from a launch command or from answers to questions."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.gpus import gpus_of_node
from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import parse_study
from search_spaces.study_file.values import study_name_problem
from tuner.errors import CommandError, Exit
from tuner.init import collectives, speculation
from tuner.init.hardware import Hardware, ask_gpus, hardware_of, parse_gpus
from tuner.init.models import short_name
from tuner.init.questions import Asker, ask_load
from tuner.init.server import MODEL, ask_server, command_text, read_command, with_draft
from tuner.init.study_text import Proposal, study_text
from tuner.init.summary import Summary, print_json, print_text
from tuner.init.today import version_that_runs
from tuner.preflight.workload import check_prompts
from tuner.studies.assembly import build_problem, make_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.study import Study
    from tuner.init.today import Today

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class InitOptions:
    """Options of the command line.

    Attributes:
        from_command: A command, a file, or `-`. `None`: ask for the values.
        output: A file, or `-`. `None`: a file with the study's name in the working directory.
        force: Whether to overwrite an existing file.
        name: Name of the study. `None`: the name of the model.
        runner: `"sglang"` or `"simulated"`.
        sets: Values of variables that the command uses, as `NAME=VALUE`.
        service: Name of the service, if the file starts several.
        yes: Whether every question takes its default.
        given: Answers to questions by the names of their options; `None` if not given.
    """

    from_command: str | None
    output: str | None
    force: bool
    name: str | None
    runner: str
    sets: tuple[str, ...]
    service: str | None
    yes: bool
    given: Mapping[str, str | None]


def init(options: InitOptions, *, as_json: bool) -> Exit:
    """Write a study file."""
    if as_json and options.output == STDOUT:
        raise CommandError("--output - and --json both write to stdout; remove one")
    if options.name is not None and (wrong := study_name_problem(options.name)) is not None:
        raise CommandError(f"--name {options.name!r}: {wrong}")
    if options.output not in {None, STDOUT}:
        _refuse_to_overwrite(Path(str(options.output)), force=options.force)
    # Questions go to stderr, so both streams must be a terminal.
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    asked = terminal and not options.yes and options.from_command != STDOUT
    asker = Asker(interactive=asked)
    today, launch, hardware, origin, notes = _server(options, asker)
    name = options.name or short_name(today.model)
    path = None if options.output == STDOUT else Path(options.output or f"{name}.yaml")
    if path is not None:
        _refuse_to_overwrite(path, force=options.force)
    folder = path.parent if path is not None else Path()
    load = ask_load(asker, options.given, folder)
    version = today.version
    proposal = Proposal(
        name=name,
        origin=origin,
        today=today,
        hardware=hardware,
        speculations=speculation.propose(today, fewest=load.fewest, version=version),
        collectives=collectives.propose(today, hardware, version),
        load=load,
        runner=options.runner,
    )
    text = study_text(proposal)
    study = _checked(text, path, folder)
    legal = speculation.without_illegal(proposal.speculations, study)
    if legal is not proposal.speculations:
        proposal = replace(proposal, speculations=legal)
        text = study_text(proposal)
        study = _checked(text, path, folder)
    servers = make_servers(study.runner, study, seed=0)
    problem = build_problem(study, servers, hot_switch=True)
    if path is None:
        sys.stdout.write(text)
    else:
        write(path, text, force=options.force)
    shown = str(path) if path is not None else STDOUT
    summary = Summary(shown, proposal, problem, launch, notes)
    if as_json:
        print_json(summary)
    else:
        print_text(summary, sys.stderr if path is None else sys.stdout)
    return Exit.DONE


def _server(
    options: InitOptions, asker: Asker
) -> tuple[Today, LaunchText | None, Hardware, str, tuple[str, ...]]:
    given = options.given
    named = None
    if given["gpus"] is not None:
        try:
            named = parse_gpus(given["gpus"])
        except ValueError as error:
            raise CommandError(f"--gpus {given['gpus']!r}: {error}") from None
    launch: LaunchText | None = None
    if options.from_command is not None:
        for name in ("model", "tp"):
            if given[name] is not None:
                raise CommandError(f"--{name} and --from-command exclude each other; remove one")
        text, origin = command_text(options.from_command)
        today, launch = read_command(
            asker,
            text,
            options.sets,
            service=options.service,
            runner=options.runner,
            elsewhere=named is not None,
        )
        today = with_draft(today, given)
    else:
        if options.sets:
            raise CommandError("--set needs --from-command")
        if options.service is not None:
            raise CommandError("--service needs a file with --from-command")
        if given["model"] is None and not asker.interactive:
            raise CommandError(
                "no server to tune; add --from-command with today's launch command (quoted, a "
                "file, or - for stdin) or --model, or run `tuner init` at a terminal"
            )
        asker.say("A few questions about your server. Enter takes the value in brackets.\n")
        model = asker.ask(MODEL, given["model"])
        named = ask_gpus(asker, given["gpus"])
        today = ask_server(asker, given, model, named.gpus)
        here = given["gpus"] is None
        version = version_that_runs(None, runner=options.runner, here=here)
        today = replace(today, version=version)
        origin = "answers"
    if named is None and today.other_device is not None:
        return today, launch, Hardware(0, today.other_device), origin, ()
    hardware, notes = hardware_of(
        asker,
        named,
        link=given["interconnect"],
        used=max(gpus_of_node(today.flags), 1),
        devices=today.env.get("CUDA_VISIBLE_DEVICES"),
        link_matters=today.machines == 1 and not (named is not None and named.is_amd),
    )
    return today, launch, hardware, origin, notes


def _checked(text: str, path: Path | None, folder: Path) -> Study:
    """Parse the study as every other command will read it."""
    shown = str(path) if path is not None else "the study"
    try:
        study = parse_study(text, shown, base_dir=str(folder))
        check_prompts(study)
    except StudyFileError as error:
        problems = "\n".join(f"  {p.key}: {p.message}" for p in error.problems)
        raise CommandError(
            f"the options do not give a valid study, so nothing was written:\n{problems}"
        ) from None
    return study


def _refuse_to_overwrite(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise CommandError(f"{path} is a folder; name a file: --output {path}/study.yaml")
    if path.suffix not in {".yaml", ".yml"}:
        raise CommandError(f"--output {path}: a study file ends in .yaml")
    if path.exists() and not force:
        raise CommandError(
            f"{path} exists already; --force overwrites it, --output names another file"
        )
    if not path.parent.is_dir():
        raise CommandError(f"--output {path}: there is no folder {path.parent}")


def write(path: Path, text: str, *, force: bool) -> None:
    """Write the whole file or nothing. Without `force`, never overwrite a file.

    Raises:
        CommandError: The file exists, or cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if force:
            beside.replace(path)
        else:
            _link(beside, path)
    except FileExistsError:
        raise CommandError(f"{path} exists already; --force overwrites it") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _link(beside: Path, path: Path) -> None:
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links.
        if path.exists():
            raise FileExistsError from None
        beside.replace(path)
