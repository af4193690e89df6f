"""Differences between two study files or two machines, which forbid to compare results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from search_spaces.secrets import is_export_only, redact
from search_spaces.space.space import Space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from results.records import Machine
    from search_spaces.study_file.study import Study

Part = Literal[
    "runner",
    "engine",
    "gpus",
    "model",
    "server",
    "space",
    "workload",
    "objective",
    "production",
    "simulated",
    "budget",
    "export",
]
"""Part of a study file or a machine. `budget` and `export` (addresses and keys, which trials do
not use) do not change results."""

_SECTIONS: tuple[Part, ...] = (
    "model",
    "server",
    "space",
    "workload",
    "objective",
    "production",
    "simulated",
    "budget",
)

_IRRELEVANT = frozenset({"budget", "export"})

_MAX_SHOWN = 60
"""Maximum length of one value in a message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a stored study and now.

    Attributes:
        part: The part that differs.
        message: Name, old value and new value, in one line.
    """

    part: Part
    message: str

    @property
    def matters(self) -> bool:
        """Whether results from before and after are not comparable."""
        return self.part not in _IRRELEVANT


def study_differences(stored: Study, now: Study, *, simulated: bool) -> tuple[Difference, ...]:
    """List the differences between two files of a study, apart from comments and spelling.

    Args:
        stored: The file of the stored study.
        now: The file of today.
        simulated: Whether the servers are simulated. If not, settings of the simulation are
            ignored.
    """
    found = []
    if stored.runner != now.runner:
        found.append(_changed("runner", "runner", stored.runner, now.runner))
    for part in _SECTIONS:
        if part == "simulated" and not simulated:
            continue
        before, after = (_section(study, part) for study in (stored, now))
        for key in dict.fromkeys((*before, *after)):
            if before.get(key) != after.get(key):
                export = part == "server" and is_export_only(key.removeprefix("server.flags."))
                found.append(
                    _changed("export" if export else part, key, before.get(key), after.get(key))
                )
    if any(d.part == "space" for d in found) and _same_space(stored, now, found):
        found = [d for d in found if d.part != "space"]
    return tuple(found)


def machine_differences(
    before: Machine, now: Machine, *, uses_gpus: bool = True
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """List the differences of a machine that forbid to continue, and those to mention.

    A fact that is unknown before or now is not a difference.

    Args:
        before: The machine of the earlier launches.
        now: This machine.
        uses_gpus: Whether the servers use GPUs.
    """
    found = [
        Difference("engine", f"{label}: measured with {was}, now {is_}")
        for label, was, is_ in (
            ("SGLang", before.sglang, now.sglang),
            ("PyTorch", before.torch, now.torch),
            ("NCCL", before.nccl, now.nccl),
        )
        if was is not None and is_ is not None and was != is_
    ]
    if uses_gpus and before.gpus != now.gpus:
        is_ = f"{_gpus(now.gpus)} (CUDA_VISIBLE_DEVICES selects the visible GPUs)"
        found.append(
            Difference("gpus", f"GPUs: measured with {_gpus(before.gpus)}, now {is_}"),
        )
    notes = [
        f"{label}: measured with {was}, now {is_}"
        for label, was, is_ in (
            ("host", before.host, now.host),
            ("driver", before.driver, now.driver),
            ("kernel", before.kernel, now.kernel),
            ("Python", before.python, now.python),
            ("CPU", before.cpu, now.cpu),
        )
        if was is not None and is_ is not None and was != is_
    ]
    topologies = {before.topology, now.topology}
    if uses_gpus and None not in topologies and len(topologies) > 1:
        notes.append(
            "topology: `nvidia-smi topo -m` prints a different topology than at the first launch"
        )
    return tuple(found), tuple(notes)


def _same_space(stored: Study, now: Study, found: list[Difference]) -> bool:
    """Whether two spaces have the same points, for example in another order."""
    if any(d.part in {"model", "server"} for d in found):
        return False  # the digest also covers model and server
    return Space(stored).digest == Space(now).digest


def _section(study: Study, part: Part) -> dict[str, object]:
    """Values of a section by dotted key."""
    section = getattr(study, part)
    return {} if section is None else dict(_leaves(section.model_dump(), part))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, object]]:  # noqa: ANN401 - any YAML value
    if isinstance(value, dict):
        for name, item in value.items():
            if item is not None:  # not given
                yield from _leaves(item, f"{key}.{name}")
    elif isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{key}[{number}]")
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def _changed(part: Part, key: str, before: object, after: object) -> Difference:
    name = key.rpartition(".")[2]
    was, is_ = (_shown(redact(name, value)) for value in (before, after))
    return Difference(part, f"{key}: was {was}, now {is_}")


def _shown(value: object) -> str:
    if value is None:
        return "not given"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _gpus(names: tuple[str, ...]) -> str:
    counts: Mapping[str, int] = {name: names.count(name) for name in names}
    return " + ".join(f"{count} x {name}" for name, count in counts.items()) or "none"
