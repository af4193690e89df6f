"""What each speculative algorithm costs to draft, and how deep a verify of it can accept.

EAGLE, EAGLE3 (and NEXTN, which SGLang makes EAGLE) draft step by step with a small head; STANDALONE
does so with a model of its own, in the target's layout; DFLASH drafts its whole block in one
forward; NGRAM looks the drafts up in what was said before, and has no draft model at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine import acceptance as simulated_acceptance
from runners.simulated_server.engine.acceptance import at_least
from runners.simulated_server.engine.tokens import unpack
from runners.simulated_server.launch.flag_state import CHAIN_ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.engine.profile import Acceptance, AlgorithmName, Profile

_STANDALONE_STEP = 8.0
"""Times a head's step, where the profile gives no STANDALONE: a small model has some 8 times its
layers. Assumed."""
_DFLASH_STEPS = 2.0
"""A block forward in steps of the head, where the profile gives no DFLASH. Assumed."""
_FRESH = 0.4
"""NGRAM's `fresh` where the profile gives none. Assumed."""
_GRAM = 3


@dataclass(frozen=True, slots=True)
class Drafting:
    """An algorithm on a profile's machine; the fields are those of `profile.Algorithm`.

    Attributes:
        simulated_length: The accept length that `SGLANG_SIMULATE_ACC_LEN` asks for, if any.
        simulated_method: How it is drawn.
    """

    name: str
    step_ms: Mapping[int, float]
    cycle_ms: float
    draft_token_ms: float
    extend_ms: float
    acceptance: Acceptance
    fresh: float
    simulated_length: float | None = None
    simulated_method: str = "match-expected"

    def draft_ms(self, num_steps: int, topk: int, width: int) -> float:
        """Time of drafting in one cycle of one request."""
        time = self.cycle_ms + self.draft_token_ms * width
        if self.name in CHAIN_ALGORITHMS:
            time += self.step_ms[max(k for k in self.step_ms if k <= max(1, topk))] * num_steps
        return time

    def chances(
        self, num_steps: int, topk: int, width: int, repetition: float = 0.0
    ) -> tuple[float, ...]:
        """`P(at least j drafts are correct)` for j = 1, 2, ...

        Args:
            num_steps: Draft steps.
            topk: Branches per step.
            width: Tokens per verify.
            repetition: How much the prompt repeats itself, see `repetition`; only NGRAM asks.
        """
        depth = min(num_steps, width - 1) if self.name in CHAIN_ALGORITHMS else width - 1
        if self.simulated_length is not None:
            return simulated_acceptance.chances(self.simulated_length, depth, self.simulated_method)
        if self.name in CHAIN_ALGORITHMS:
            return at_least(self.acceptance, num_steps, topk, width)
        chain = at_least(self.acceptance, width - 1, 1, width)
        if self.name != "NGRAM":
            return chain
        share = self.fresh + (1.0 - self.fresh) * repetition
        return tuple(p * share for p in chain)

    def pauses(self, num_steps: int) -> bool:
        """Whether nothing is drafted at all: adaptive speculation at no steps.

        NGRAM's steps are a quotient of its draft tokens that may be 0, and mean nothing.
        """
        return num_steps == 0 and self.name in CHAIN_ALGORITHMS

    @property
    def looks_at_prompts(self) -> bool:
        """Whether the acceptance depends on what the prompt says."""
        return self.name == "NGRAM" and self.fresh < 1.0


def drafting(profile: Profile, name: str, facts: Mapping[str, Any] | None = None) -> Drafting:
    """An algorithm as the profile has it, with the defaults of what the profile leaves out.

    Args:
        profile: The machine.
        name: SGLang's name of the algorithm.
        facts: Variables among them, for `simulated_acceptance`.
    """
    algorithm: AlgorithmName = "EAGLE" if name == "NEXTN" else name  # type: ignore[assignment]
    own, base = profile.algorithms.get(algorithm), profile.draft
    scale = _STANDALONE_STEP if algorithm == "STANDALONE" else 1.0
    step_ms = {k: ms * scale for k, ms in base.step_ms.items()}
    cycle_ms = _DFLASH_STEPS * base.step_ms[1] if algorithm == "DFLASH" else 0.0
    extend_ms = 0.0 if algorithm == "NGRAM" else base.extend_ms * scale
    acceptance, token_ms, fresh = profile.acceptance, 0.0, _FRESH
    if own is not None:
        step_ms = step_ms if own.step_ms is None else own.step_ms
        cycle_ms = cycle_ms if own.cycle_ms is None else own.cycle_ms
        token_ms = token_ms if own.draft_token_ms is None else own.draft_token_ms
        extend_ms = extend_ms if own.extend_ms is None else own.extend_ms
        acceptance = own.acceptance or acceptance
        fresh = fresh if own.fresh is None else own.fresh
    facts = facts or {}
    return Drafting(
        algorithm,
        step_ms,
        cycle_ms,
        token_ms,
        extend_ms,
        acceptance,
        fresh,
        simulated_acceptance.simulated_length(facts, algorithm),
        str(facts.get(simulated_acceptance.METHOD) or "match-expected"),
    )


@lru_cache(maxsize=512)
def repetition(packed: bytes) -> float:
    """How much a prompt repeats itself: the share of its runs of three tokens seen before in it.

    Args:
        packed: The prompt's token ids, see `tokens.pack`.
    """
    ids = unpack(packed)
    runs = len(ids) - _GRAM + 1
    if runs < 1:
        return 0.0
    return 1.0 - len(set(zip(ids, ids[1:], ids[2:], strict=False))) / runs
