"""What may be said of the best trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tuner.scoring import Standing

VerdictKind = Literal["winner", "baseline", "tie", "unconfirmed", "infeasible"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a study, and its reason as a sentence."""

    kind: VerdictKind
    reason: str


def verdict(standing: Standing) -> Verdict:
    """The verdict as far as the search alone supports one.

    A search picks the largest of many noisy figures, so its best is `unconfirmed` until it has
    been launched again beside the best baseline (design decision 5).
    """
    best = standing.best
    if best is None:
        if not any(trial.state.is_verdict for trial in standing.trials):
            return Verdict("unconfirmed", "nothing was judged yet")
        return Verdict("infeasible", "no configuration was measured that meets the constraints")
    baselines = {trial.number for trial in standing.baselines.values() if trial is not None}
    if best.number in baselines:
        return Verdict("unconfirmed", "nothing was faster than this baseline in the search so far")
    return Verdict(
        "unconfirmed",
        "the best of the search; it was not launched again beside the best baseline",
    )
