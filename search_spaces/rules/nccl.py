"""Rules of NCCL, which depend on environment variables only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl.values import BOUNDED, crossed_bounds, nothing_left
from search_spaces.nccl.variables import NEWEST
from search_spaces.rules.rule import Rules

if TYPE_CHECKING:
    from search_spaces.rules.candidate import Candidate

_rules = Rules(f"NCCL {NEWEST}", server=False)


@_rules.add("src/graph/connect.cc:492-505, src/init.cc:2190, src/graph/paths.cc:980", env=BOUNDED)
def _nccl_bounds(server: Candidate) -> str | None:
    return next((message for _, _, message in crossed_bounds(server.env)), None)


@_rules.add(
    "src/graph/tuning.cc:293-304, src/enqueue.cc:2052-2065", env=("NCCL_ALGO", "NCCL_PROTO")
)
def _nccl_nothing_left(server: Candidate) -> str | None:
    return nothing_left(server.env)


NCCL_RULES = _rules.all
