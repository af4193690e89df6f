"""Options of `tuner export`. Importing this module must stay cheap."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, ShownOption, StorageOption
from tuner.errors import CommandError


class ExportFormat(StrEnum):
    """Format of an export."""

    SHELL = "shell"
    JSON = "json"
    YAML = "yaml"
    SGLANG_CONFIG = "sglang-config"
    COMPOSE = "compose"
    K8S = "k8s"
    SYSTEMD = "systemd"


class BaselineName(StrEnum):
    """Baseline that an export is compared with."""

    PRODUCTION = "production"
    DEFAULT = "default"
    NONE = "none"


class Entry(StrEnum):
    """Server that an exported command starts."""

    SGLANG = "sglang"
    SIMULATED = "simulated"


def export(
    *,
    study: ShownOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    format_: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="A shell script, JSON or YAML, SGLang's --config file, a Compose file, a "
            "Kubernetes manifest, or a systemd unit.",
        ),
    ] = ExportFormat.SHELL,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file instead of stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --output.")] = False,
    trial: Annotated[
        int | None, typer.Option(help="Export this trial. [default: the best]")
    ] = None,
    entry: Annotated[
        Entry,
        typer.Option(help="Start SGLang, or the simulated server of a simulated study."),
    ] = Entry.SGLANG,
    image: Annotated[
        str | None,
        typer.Option(
            help="Container image for compose and k8s. [default: SGLang's of the same version]"
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Print only the changes against the baseline and their gains."),
    ] = False,
    against: Annotated[
        BaselineName | None,
        typer.Option(help="Compare with this baseline. [default: today's command, if known]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, also for --diff.")] = False,
) -> None:
    """Export the best launch command, for use elsewhere.

    Every format has its whole environment and every explicit flag, and says what each tuned value
    brought.
    """
    from tuner.commands import export as exporting  # noqa: PLC0415

    baseline = against.value if against else None
    if diff:
        if output is not None or image is not None or force:
            raise CommandError("--diff prints to stdout; remove --output, --image and --force")
        code = exporting.diff(
            study, storage=storage, trial=trial, against=baseline, as_json=as_json
        )
        raise typer.Exit(int(code))
    code = exporting.export(
        study,
        storage=storage,
        format_="json" if as_json else format_.value,
        output=output,
        trial=trial,
        entry=entry.value,
        image=image,
        against=baseline,
        force=force,
    )
    raise typer.Exit(int(code))
