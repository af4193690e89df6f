"""What a client should see of a profile, in closed form; `walk` runs the scheduler in no time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.simulated_server.cost import CostModel, CycleTime
from runners.simulated_server.resolution import CHUNKED_PREFILL_SIZE

if TYPE_CHECKING:
    from runners.simulated_server.profile import Profile
    from search_spaces.configuration import Configuration


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
    repetition: float = 0.0,
) -> Expectation:
    """What a client should see whose answers are equally long and whose prompts are fresh.

    Exact at concurrency 1 (the mean over all prompts; within 0.5 % of a walk of 40 prompts). Above
    it, for clients that start together and answer at once. Without speculation they stay in step
    and share every prefill: within 0.3 % of `walk`, but where a prefill takes several chunks the
    first of them get their token before `ttft_ms`. With speculation it takes their ends to come at
    random, those of one cycle sharing a prefill. Clients that started together share more than
    that for a long time, so tok/s is a lower bound then: at 8 clients 1 to 6 % below `walk`, at 64
    clients 4 to 9 % for the Kimi profile and 18 to 22 % for the 8B, whose cycles are shorter.
    Where it matters, `walk`.

    Args:
        profile: The machine.
        configuration: In canonical form (steps, topk and draft tokens all stated).
        prompt_tokens: Tokens of every prompt, in one chunk.
        output_tokens: Tokens of every answer.
        concurrency: Requests in flight, all of them running.
        repetition: How much the prompts repeat themselves, see `algorithms.repetition`.

    Raises:
        ValueError: Speculation with unknown steps, topk or draft tokens.
    """
    cost = CostModel(profile, facts_of(configuration))
    remaining = output_tokens - 1  # the prefill yields the first
    accept_length = None
    if cost.drafting is None:
        cycle = cost.decode(concurrency)
        cycles = float(remaining)
    else:
        steps, topk, width = shape_of(configuration)
        chances = cost.drafting.chances(steps, topk, width, repetition)
        cycles, accept_length = _until_the_end(chances, remaining)
        cycle = cost.speculate(
            concurrency, steps, topk, width, remaining / cycles if remaining else 1.0
        )
    together = _share_a_prefill(concurrency, cycles, in_step=accept_length is None)
    chunks = max(1.0, together * prompt_tokens / CHUNKED_PREFILL_SIZE)
    ttft = (chunks - 1.0) * cost.prefill_ms(0) + cost.prefill_ms(together * prompt_tokens)
    request_ms = concurrency / together * ttft + cycles * cycle.total_ms
    return Expectation(
        cycle=cycle,
        accept_length=accept_length,
        cycles=cycles,
        ttft_ms=ttft,
        output_tok_s=1000.0 * concurrency * output_tokens / request_ms,
    )


def shape_of(configuration: Configuration) -> tuple[int, int, int]:
    """Steps, topk and draft tokens of a configuration that speculates.

    Raises:
        ValueError: Not all of them are stated.
    """
    speculation = configuration.speculation
    steps, topk = speculation.num_steps, speculation.topk
    width = speculation.num_draft_tokens
    if width is not None and speculation.algorithm in {"NGRAM", "DFLASH"}:
        steps, topk = steps or 1, topk or 1  # they go by the draft tokens alone
    if steps is None or topk is None or width is None:
        raise ValueError("state num_steps, topk and num_draft_tokens: defaults are SGLang's")
    return steps, topk, width


def _share_a_prefill(concurrency: int, cycles: float, *, in_step: bool) -> float:
    """Requests per prefill batch, on average."""
    if concurrency == 1 or cycles == 0.0:
        return 1.0 if cycles else float(concurrency)
    if in_step:
        return float(concurrency)
    # As many ends in a cycle as come at random at this rate, given that there is one.
    rate = concurrency / cycles
    return rate / -math.expm1(-rate)


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
