"""`tuner explain`: where the time of a cycle goes, and which knobs are worth a launch."""

from __future__ import annotations

from tuner.explain.choice import NothingToExplain
from tuner.explain.explanation import Explanation, explain

__all__ = ["Explanation", "NothingToExplain", "explain"]
