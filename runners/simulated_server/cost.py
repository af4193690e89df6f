"""What things cost on the simulated machine, and what a client should therefore see.

`expected` is the closed form of what the server does step by step: tests hold the server to it,
and the replay of a profile needs no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.simulated_server.acceptance import at_least
from runners.simulated_server.profile import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.profile import Profile
    from search_spaces.configuration import Configuration


@dataclass(frozen=True, slots=True)
class CycleTime:
    """One decode cycle, in milliseconds; without speculation all of it is `verify` and `rest`."""

    draft_ms: float
    draft_extend_ms: float
    verify_ms: float
    rest_ms: float

    @property
    def total_ms(self) -> float:
        """The whole cycle."""
        return self.draft_ms + self.draft_extend_ms + self.verify_ms + self.rest_ms


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a client should see, noise and transport aside.

    Attributes:
        cycle: Time of one cycle.
        accept_length: Tokens per verify as the client counts them, the last cycle's drafts beyond
            the limit included; `None` without speculation.
        cycles: Mean number of cycles per request.
        ttft_ms: Time to first token: the prefill.
        output_tok_s: Output tokens per second, prefill included.
    """

    cycle: CycleTime
    accept_length: float | None
    cycles: float
    ttft_ms: float
    output_tok_s: float


class CostModel:
    """Times of one configuration on a profile's machine.

    Args:
        profile: The machine.
        facts: Flags by destination and variables by name, for the profile's conditions.
    """

    def __init__(self, profile: Profile, facts: Mapping[str, Any]) -> None:
        self._profile = profile
        known = dict(facts)
        saving = next((s for s in profile.collectives if holds(s.when, known)), None)
        self._verify_saving_ms = saving.verify_ms if saving else 0.0
        self._decode_saving_ms = saving.decode_ms if saving else 0.0

    def prefill_ms(self, uncached_tokens: int) -> float:
        """One prefill forward over the uncached tokens of its requests."""
        prefill = self._profile.prefill
        return prefill.base_ms + prefill.token_ms * uncached_tokens

    def decode(self, batch: int) -> CycleTime:
        """A decode forward of `batch` requests without speculation."""
        profile = self._profile
        forward = profile.decode_ms + profile.batch.token_ms * (batch - 1)
        return CycleTime(0.0, 0.0, max(0.0, forward - self._decode_saving_ms), 0.0)

    def speculate(self, batch: int, num_steps: int, topk: int, width: int) -> CycleTime:
        """A draft-verify cycle of `batch` requests; `width` tokens are verified for each."""
        profile = self._profile
        known = max(k for k in profile.draft.step_ms if k <= max(1, topk))
        verify = profile.verify.base_ms + profile.verify.per_token_ms * width
        verify += profile.batch.token_ms * width * (batch - 1)
        return CycleTime(
            draft_ms=profile.draft.step_ms[known] * num_steps,
            draft_extend_ms=profile.draft.extend_ms,
            verify_ms=max(0.0, verify - self._verify_saving_ms),
            rest_ms=profile.rest_ms,
        )


def facts_of(configuration: Configuration) -> dict[str, Any]:
    """The facts that a profile's conditions ask about, of a configuration."""
    speculation = configuration.speculation
    facts: dict[str, Any] = {
        name.replace("-", "_"): value
        for name, value in (*configuration.flags, *configuration.env)
        if value is not None
    }
    if speculation.enabled:
        facts |= {k: v for k, v in speculation.to_dict().items() if v is not None}
    return facts


def expected(
    profile: Profile,
    configuration: Configuration,
    *,
    prompt_tokens: int = 200,
    output_tokens: int = 256,
    concurrency: int = 1,
) -> Expectation:
    """What a client with fixed-length answers and fresh prompts should see.

    At concurrency 1 the mean over all prompts; an approximation above it.

    Args:
        profile: The machine.
        configuration: In canonical form (steps, topk and draft tokens all stated).
        prompt_tokens: Tokens of every prompt.
        output_tokens: Tokens of every answer.
        concurrency: Requests in flight, all of them running.

    Raises:
        ValueError: Speculation with unknown steps, topk or draft tokens.
    """
    cost = CostModel(profile, facts_of(configuration))
    speculation = configuration.speculation
    remaining = output_tokens - 1  # the prefill yields the first
    accept_length = None
    if not speculation.enabled:
        cycle = cost.decode(concurrency)
        cycles = float(remaining)
    else:
        steps, topk = speculation.num_steps, speculation.topk
        width = speculation.num_draft_tokens
        if steps is None or topk is None or width is None:
            raise ValueError("state num_steps, topk and num_draft_tokens: defaults are SGLang's")
        cycle = cost.speculate(concurrency, steps, topk, width)
        chances = at_least(profile.acceptance, steps, topk, width)
        cycles, accept_length = _until_the_end(chances, remaining)
    ttft = cost.prefill_ms(prompt_tokens)
    request_ms = concurrency * ttft + cycles * cycle.total_ms
    return Expectation(
        cycle=cycle,
        accept_length=accept_length,
        cycles=cycles,
        ttft_ms=ttft,
        output_tok_s=1000.0 * concurrency * output_tokens / request_ms,
    )


def _until_the_end(chances: tuple[float, ...], tokens: int) -> tuple[float, float]:
    """Mean cycles until `tokens` more tokens are out, and the accept length over them.

    Requests end in the middle of a cycle. By renewal theory the last cycle overshoots by
    (E[X^2] / E[X] - 1) / 2 tokens; the cycles of a low-discrepancy sequence, whose sums hardly
    scatter, number (tokens + (E[X] - 1) / 2) / E[X].
    """
    mean = 1.0 + sum(chances)
    if tokens == 0:
        return 0.0, mean
    # From the tail: E[X^2] = sum of (2k - 1) P(X >= k).
    square = 1.0 + sum((2 * k + 1) * p for k, p in enumerate(chances, start=1))
    cycles = (tokens + (mean - 1.0) / 2.0) / mean
    return cycles, (tokens + (square / mean - 1.0) / 2.0) / cycles
