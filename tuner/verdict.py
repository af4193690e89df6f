"""What may be said of the best trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from results.records import Trial

VerdictKind = Literal["winner", "baseline", "tie", "unconfirmed", "infeasible"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a study, and its reason as a sentence."""

    kind: VerdictKind
    reason: str


def verdict(best: Trial | None) -> Verdict:
    """The verdict as far as the search alone supports one.

    A search picks the largest of many noisy figures, so its best is `unconfirmed` until it has
    been launched again beside the best baseline (design decision 5).
    """
    if best is None:
        return Verdict("infeasible", "no configuration was measured that meets the constraints")
    return Verdict(
        "unconfirmed",
        "the best of the search; it was not launched again beside the best baseline",
    )
