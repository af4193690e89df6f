"""Whether a study's windows are all of one load: figures of different prompts are not compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError

if TYPE_CHECKING:
    from results.records import Measurement
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces.workload import OperatingPoint, Workload


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
            now = runner.load_fingerprint(point)
            if now is not None and now != load:
                return f"{point.name} are not those that trial {first} was measured with"
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
            f"the prompts at {measurement.point.name} are no longer those that trial {first} was "
            f"measured with (a file of prompts or arrivals was changed, or another version of the "
            f"tuner measured it): their figures cannot be compared. Bring them back, then run "
            f"`tuner resume --study {self._stored.name}`, with --fork NEW to go on with these"
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
