"""Differences between two study files, two machines or two sets of prompts. Pure functions.

Results are comparable only without such differences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from results.records import Failure
from runners.base import LoadFingerprint, RunnerError
from search_spaces.secrets import is_export_only, redact
from search_spaces.space.space import Space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from results.records import Machine, Measurement
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces.study_file.study import Study
    from search_spaces.workload import OperatingPoint, Workload


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
"""What a difference is of. `budget` and `export` (addresses and keys, which servers of trials are
not given) change no figure."""

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

_NO_FIGURES = frozenset({"budget", "export"})

_MOST_SHOWN = 60
"""Characters of one value in a message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it was.

    Attributes:
        part: What it is of.
        message: One line: what it was, what it is.
    """

    part: Part
    message: str

    @property
    def matters(self) -> bool:
        """Whether figures from before and after cannot stand in one study."""
        return self.part not in _NO_FIGURES


def study_differences(stored: Study, now: Study, *, simulated: bool) -> tuple[Difference, ...]:
    """What differs between two files of a study; empty where only comments and spelling do.

    Args:
        stored: As the study was created.
        now: The other one.
        simulated: Whether its servers are simulated; else the simulation's settings are nothing
            to it.
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
    """What of a machine differs: what forbids to go on, and what only deserves a word.

    What is not known of either is no difference.

    Args:
        before: Where the study was measured.
        now: Where it would go on.
        uses_gpus: Whether its servers use GPUs.
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
    """Whether two spaces are one although they are written otherwise (another order, say)."""
    if any(d.part in {"model", "server"} for d in found):
        return False  # the digest is of these too
    return Space(stored).digest == Space(now).digest


def _section(study: Study, part: Part) -> dict[str, object]:
    """The values of a section by their dotted keys."""
    section = getattr(study, part)
    return {} if section is None else dict(_leaves(section.model_dump(), part))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, object]]:  # noqa: ANN401 - any YAML value
    if isinstance(value, dict):
        for name, item in value.items():
            if item is not None:  # not given, as most of a section
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
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _gpus(names: tuple[str, ...]) -> str:
    counts: Mapping[str, int] = {name: names.count(name) for name in names}
    return " + ".join(f"{count} x {name}" for name, count in counts.items()) or "none"


class SameLoad:
    """Knows what was sent at each operating point of a study, also before it was resumed.

    Args:
        stored: The study.
        store: Where its measurements are.
    """

    def __init__(self, stored: StoredStudy, store: Store) -> None:
        self._stored = stored
        self._store = store
        self._loads: dict[OperatingPoint, tuple[str, int]] | None = None

    def changed(self, runner: Runner, workload: Workload) -> str | None:
        """Which point's prompts are no longer those of its measurements; before any launch.

        `None` where they are the same, or where only a launch can tell.
        """
        loads = self._known()
        for point in workload.points:
            if point not in loads:
                continue
            load, first = loads[point]
            now = runner.load_fingerprint(point) if isinstance(runner, LoadFingerprint) else None
            if now is not None and now != load:
                return f"{point.name} differ from those of trial {first}"
        return None

    def check(self, measurement: Measurement, trial: int) -> None:
        """Compares a new measurement with the first one at its point.

        Raises:
            RunnerError: Its prompts or its sampling are others; a fault of the study.
        """
        mine = measurement.workload_fingerprint
        load, first = self._known().setdefault(measurement.point, (mine, trial))
        if load == mine:
            return
        message = (
            f"the prompts at {measurement.point.name} differ from those of trial {first} (a prompt "
            f"or arrival file was changed, or another version of the tuner measured the trial), so "
            f"the results cannot be compared. Restore the files and run `tuner resume --study "
            f"{self._stored.name}`, or add `--fork NEW` to continue with the new prompts"
        )
        raise RunnerError(Failure("load_changed", "load", "study", message))

    def _known(self) -> dict[OperatingPoint, tuple[str, int]]:
        if self._loads is None:
            self._loads = {
                earlier.point: (earlier.workload_fingerprint, measured.number)
                for measured in reversed(self._store.trials(self._stored.id))
                for earlier in measured.measurements
            }
        return self._loads
