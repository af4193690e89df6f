"""Check that all measurements of a study used the same prompts and sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import LoadFingerprint, RunnerError

if TYPE_CHECKING:
    from results.records import Measurement
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces.workload import OperatingPoint, Workload


class SameLoad:
    """Compares the load of new measurements with the stored measurements of a study.

    Args:
        stored: The study.
        store: Database with the measurements.
    """

    def __init__(self, stored: StoredStudy, store: Store) -> None:
        self._stored = stored
        self._store = store
        self._loads: dict[OperatingPoint, tuple[str, int]] | None = None

    def changed(self, runner: Runner, workload: Workload) -> str | None:
        """Name the first operating point whose load has changed, before any launch.

        Returns `None` if no load has changed, or if only a launch can tell.
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
        """Compare the load of a measurement with the first measurement at its point.

        Raises:
            RunnerError: Prompts or sampling differ, which is a fault of the study.
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
