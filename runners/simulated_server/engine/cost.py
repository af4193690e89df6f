"""Decode cycles: drafts, accepted drafts, and times on the profile's machine.

EAGLE and EAGLE3 draft step by step with a small head. STANDALONE drafts step by step with a model
in the target's layout. DFLASH drafts a block in one forward. NGRAM looks the drafts up in the
earlier text, without a draft model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from runners.simulated_server.engine import acceptance as simulated_acceptance
from runners.simulated_server.engine.acceptance import at_least, draw, thresholds
from runners.simulated_server.engine.tokens import unpack
from runners.simulated_server.faults.misbehaviour import holds
from runners.simulated_server.launch.flags import CHAIN_ALGORITHMS
from search_spaces.configuration import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runners.simulated_server.engine.adaptive import AdaptiveSteps
    from runners.simulated_server.engine.profile import Acceptance, AlgorithmName, Profile
    from runners.simulated_server.engine.request import Request


_STANDALONE_STEP = 8.0
"""Default of STANDALONE's step in steps of the head: a small model has about 8 times the layers.
Assumed."""
_DFLASH_STEPS = 2.0
"""Default of DFLASH's block forward in steps of the head. Assumed."""
_FRESH = 0.4
"""Default of NGRAM's `fresh`. Assumed."""
_GRAM = 3


@dataclass(frozen=True, slots=True)
class Drafting:
    """An algorithm on a profile's machine; the fields are those of `profile.Algorithm`.

    Attributes:
        simulated_length: Accept length of `SGLANG_SIMULATE_ACC_LEN`, if any.
        simulated_method: `SGLANG_SIMULATE_ACC_METHOD`.
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
        """Return the time of drafting in one cycle of one request."""
        time = self.cycle_ms + self.draft_token_ms * width
        if self.name in CHAIN_ALGORITHMS:
            time += self.step_ms[max(k for k in self.step_ms if k <= max(1, topk))] * num_steps
        return time

    def chances(
        self, num_steps: int, topk: int, width: int, repetition: float = 0.0
    ) -> tuple[float, ...]:
        """Return `P(at least j drafts are correct)` for j = 1, 2, ...

        Args:
            num_steps: Draft steps.
            topk: Branches per step.
            width: Tokens per verify.
            repetition: See `repetition`; only NGRAM uses the value.
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
        """Return whether the algorithm does not draft: adaptive speculation at 0 steps.

        NGRAM's steps are a quotient that may be 0 without this meaning.
        """
        return num_steps == 0 and self.name in CHAIN_ALGORITHMS

    @property
    def looks_at_prompts(self) -> bool:
        """Whether the acceptance depends on the prompt."""
        return self.name == "NGRAM" and self.fresh < 1.0


def drafting(profile: Profile, name: str, facts: Mapping[str, Any] | None = None) -> Drafting:
    """Return an algorithm of the profile, with defaults for the values that it leaves out.

    Args:
        profile: The simulated machine.
        name: SGLang's name of the algorithm.
        facts: Flags and variables; `SGLANG_SIMULATE_ACC_LEN` overrides the acceptance.
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
    """Return the share of a prompt's runs of three tokens that repeat an earlier run.

    Args:
        packed: Token ids of the prompt, see `tokens.pack`.
    """
    ids = unpack(packed)
    runs = len(ids) - _GRAM + 1
    if runs < 1:
        return 0.0
    return 1.0 - len(set(zip(ids, ids[1:], ids[2:], strict=False))) / runs


@dataclass(frozen=True, slots=True)
class CycleTime:
    """Times of one decode cycle in milliseconds; without speculation only `verify` and `rest`."""

    draft_ms: float
    draft_extend_ms: float
    verify_ms: float
    rest_ms: float

    @property
    def total_ms(self) -> float:
        return self.draft_ms + self.draft_extend_ms + self.verify_ms + self.rest_ms

    def lasting(self, total_ms: float) -> CycleTime:
        """Return times in the same proportions with another total."""
        factor = total_ms / self.total_ms if self.total_ms else 0.0
        return CycleTime(
            self.draft_ms * factor,
            self.draft_extend_ms * factor,
            self.verify_ms * factor if self.total_ms else total_ms,
            self.rest_ms * factor,
        )


class CostModel:
    """Times of one configuration on a profile's machine.

    Args:
        facts: Flags by destination and variables by name, for the profile's conditions.
    """

    def __init__(self, profile: Profile, facts: Mapping[str, Any]) -> None:
        self._profile = profile
        self.facts = dict(facts)
        saving = next((s for s in profile.collectives if holds(s.when, self.facts)), None)
        self._verify_saving_ms = saving.verify_ms if saving else 0.0
        self._decode_saving_ms = saving.decode_ms if saving else 0.0
        name = self.facts.get("algorithm") or self.facts.get("speculative_algorithm")
        speculates = name is not None and str(name).lower() != "none"
        self.drafting: Drafting | None = (
            drafting(profile, str(name), self.facts) if speculates else None
        )

    def at_steps(self, num_steps: int, num_draft_tokens: int) -> Self:
        """Return the cost model of another shape; other conditions of the profile may hold."""
        return type(self)(
            self._profile,
            self.facts
            | {
                "num_steps": num_steps,
                "num_draft_tokens": num_draft_tokens,
                "speculative_num_steps": num_steps,
                "speculative_num_draft_tokens": num_draft_tokens,
            },
        )

    def prefill_ms(self, uncached_tokens: float) -> float:
        prefill = self._profile.prefill
        return prefill.base_ms + prefill.token_ms * uncached_tokens

    def decode(self, batch: int, tokens: float = 1.0) -> CycleTime:
        """Return the times of a decode forward without speculation.

        Args:
            batch: Number of requests.
            tokens: Tokens per request; only `every_token_ms` uses the value.
        """
        profile = self._profile
        forward = profile.decode_ms + profile.batch.token_ms * (batch - 1)
        cycle = CycleTime(0.0, 0.0, max(0.0, forward - self._decode_saving_ms), 0.0)
        return self._equal(cycle, batch, tokens)

    def speculate(
        self, batch: int, num_steps: int, topk: int, width: int, tokens: float = 1.0
    ) -> CycleTime:
        """Return the times of a draft-verify cycle that verifies `width` tokens per request.

        At 0 steps (adaptive speculation) the target decodes one token and the draft extends its
        cache, as in SGLang 0.5.23.
        """
        profile, drafts = self._profile, self.drafting
        if drafts is None:
            return self.decode(batch, tokens)
        if drafts.pauses(num_steps):
            forward = profile.decode_ms + profile.batch.token_ms * (batch - 1)
            verify, draft, saving = forward, 0.0, self._decode_saving_ms
        else:
            verify = profile.verify.base_ms + profile.verify.per_token_ms * width
            verify += profile.batch.token_ms * width * (batch - 1)
            draft = drafts.draft_ms(num_steps, topk, width)
            draft += profile.batch.draft_token_ms * num_steps * max(1, topk) * (batch - 1)
            saving = self._verify_saving_ms
        cycle = CycleTime(
            draft_ms=draft,
            draft_extend_ms=drafts.extend_ms,
            verify_ms=max(0.0, verify - saving),
            rest_ms=profile.rest_ms,
        )
        return self._equal(cycle, batch, tokens)

    def _equal(self, cycle: CycleTime, batch: int, tokens: float) -> CycleTime:
        each = self._profile.every_token_ms
        if each is None:
            return cycle
        return cycle.lasting(tokens * (each + self._profile.batch.token_ms * (batch - 1)))


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of a batch.

    Attributes:
        time: Times without noise.
        correct: Correct drafts of each request; empty without speculation.
    """

    time: CycleTime
    correct: tuple[int, ...]


class Cycles:
    """The decode cycles of one server.

    Args:
        num_draft_tokens: Initial tokens per verify.
        adaptive: Chooses the steps of every cycle; `None`: fixed steps.
    """

    def __init__(
        self,
        cost: CostModel,
        num_steps: int,
        topk: int,
        num_draft_tokens: int,
        adaptive: AdaptiveSteps | None = None,
    ) -> None:
        self.cost = cost
        self.num_steps = num_steps
        self.num_draft_tokens = num_draft_tokens
        self._topk = topk
        self._adaptive = adaptive
        self._known = {(num_steps, num_draft_tokens): cost}
        self._chosen: tuple[float, ...] = ()
        self._renew()

    @property
    def speculating(self) -> bool:
        """Whether cycles draft and verify."""
        return self.cost.drafting is not None

    @property
    def setting(self) -> Setting:
        return Setting(self.num_steps, self.num_draft_tokens)

    def switch(self, setting: Setting) -> None:
        """Apply another setting and evaluate the profile's conditions again."""
        key = setting.size
        if key == (self.num_steps, self.num_draft_tokens):
            return
        self.num_steps, self.num_draft_tokens = key
        if key not in self._known:
            self._known[key] = self.cost.at_steps(*key)
        self.cost = self._known[key]
        self._renew()

    def next(self, batch: Sequence[Request]) -> Cycle:
        """Return the next cycle of the requests, without changing the requests."""
        size = len(batch)
        if not self.speculating:
            return Cycle(self.cost.decode(size), ())
        if self._adaptive is not None:
            self.switch(Setting(self._adaptive.steps(size)))
        drafts = self.cost.drafting
        if drafts is not None and drafts.looks_at_prompts:
            correct = [draw(r.offset, r.verify_calls, self._of(r)) for r in batch]
        else:
            chosen = self._chosen
            correct = [draw(r.offset, r.verify_calls, chosen) for r in batch]
        yielded = [
            min(c + 1, r.last - r.completion_tokens) for r, c in zip(batch, correct, strict=True)
        ]
        time = self.cost.speculate(
            size, self.num_steps, self._topk, self.num_draft_tokens, sum(yielded) / size
        )
        return Cycle(time, tuple(correct))

    def verified(self, cycle: Cycle) -> None:
        """Pass the correct drafts of a finished cycle to the adaptive steps."""
        if self._adaptive is not None and cycle.correct:
            self._adaptive.verified(len(cycle.correct), cycle.correct)

    def _renew(self) -> None:
        drafts = self.cost.drafting
        if drafts is None:
            return
        if drafts.pauses(self.num_steps):
            self._chosen = ()
            return
        chances = drafts.chances(self.num_steps, self._topk, self.num_draft_tokens)
        self._chosen = thresholds(chances)

    def _of(self, request: Request) -> tuple[float, ...]:
        if not request.thresholds and self.cost.drafting is not None:
            chances = self.cost.drafting.chances(
                self.num_steps, self._topk, self.num_draft_tokens, repetition(request.packed)
            )
            request.thresholds = thresholds(chances)
        return request.thresholds
