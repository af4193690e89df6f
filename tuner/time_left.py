"""How long a study will take yet, by what its launches took so far. Pure.

A launch is a start and a window's time for each setting that is measured in it: launches of five
settings and of one have the same start (but for the switched one's states), and not the same end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from results.records import LaunchState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import Launch, Trial


@dataclass(frozen=True, slots=True)
class Pace:
    """What launches of a study take, in seconds of its clock.

    Attributes:
        start_s: Until a server of one setting is ready.
        switched_start_s: Until one is that is prepared for several.
        setting_s: For each setting that is measured, the server's end included.
    """

    start_s: float
    switched_start_s: float
    setting_s: float

    def seconds(self, sizes: Iterable[int]) -> float:
        """Of launches that measure so many settings each, an anchor among them."""
        return sum(
            (self.switched_start_s if size > 1 else self.start_s) + size * self.setting_s
            for size in sizes
        )


def pace_of(launches: Sequence[Launch], trials: Sequence[Trial]) -> Pace | None:
    """Of the launches of a study that came to their end by themselves; `None` before the first."""
    judged = Counter(trial.judged_in for trial in trials)
    by_number = {trial.number: trial for trial in trials}
    starts: dict[bool, list[float]] = {False: [], True: []}
    served, settings = 0.0, 0
    for launch in launches:
        if launch.state is not LaunchState.COMPLETE or launch.imported_from is not None:
            continue
        if launch.ready_s is None or launch.seconds is None:
            continue
        switched = bool(launch.intent.settings)
        first = by_number.get(launch.trials[0]) if launch.trials else None
        anchors = int(switched and first is not None and first.judged_in != launch.id)
        starts[switched].append(launch.ready_s)
        served += max(0.0, launch.seconds - launch.ready_s)
        settings += judged[launch.id] + anchors
    if not settings:
        return None
    alone, many = starts[False] or starts[True], starts[True] or starts[False]
    return Pace(fmean(alone), fmean(many), served / settings)
