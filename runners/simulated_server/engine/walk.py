"""Expected results of a profile: in closed form, and by running the scheduler on a virtual clock.

Both use the cost model of the server. They say what a profile implies, not whether it is right.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.adaptive import adaptive_steps
from runners.simulated_server.engine.cost import CostModel, Cycles, CycleTime
from runners.simulated_server.engine.request import make_request
from runners.simulated_server.engine.scheduler import Limits, Scheduler
from runners.simulated_server.launch.flags import CHUNKED_PREFILL_SIZE

if TYPE_CHECKING:
    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.engine.request import Request
    from search_spaces.configuration import Configuration


@dataclass(slots=True)
class Walked:
    """One request's times, in milliseconds from the walk's beginning."""

    request: Request
    arrived_ms: float
    first_token_ms: float = 0.0
    finished_ms: float = 0.0

    @property
    def ttft_ms(self) -> float:
        """Time to first token."""
        return self.first_token_ms - self.arrived_ms

    @property
    def tpot_ms(self) -> float:
        """Time per output token after the first."""
        return (self.finished_ms - self.first_token_ms) / (self.request.completion_tokens - 1)


@dataclass(frozen=True, slots=True)
class Walk:
    """A closed loop.

    Attributes:
        requests: All of them, by their end.
        concurrency: Requests in flight.
    """

    requests: tuple[Walked, ...]
    concurrency: int

    @property
    def steady(self) -> tuple[Walked, ...]:
        """Those but the first and the last of every client."""
        return self.requests[self.concurrency : -self.concurrency]

    @property
    def output_tok_s(self) -> float:
        """Tokens of the steady requests per second from where the one before them ended."""
        steady = self.steady
        tokens = sum(w.request.completion_tokens for w in steady)
        began = self.requests[self.concurrency - 1].finished_ms
        return 1000.0 * tokens / (steady[-1].finished_ms - began)

    @property
    def ttft_ms(self) -> float:
        """Mean time to first token."""
        return fmean(w.ttft_ms for w in self.steady)

    @property
    def ttft_p50_ms(self) -> float:
        """Median time to first token."""
        return median(w.ttft_ms for w in self.steady)

    @property
    def tpot_ms(self) -> float:
        """Mean time per output token after the first."""
        return fmean(w.tpot_ms for w in self.steady)

    @property
    def tpot_p50_ms(self) -> float:
        """Median time per output token after the first."""
        return median(w.tpot_ms for w in self.steady)

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify; `None` without speculation."""
        verifies = sum(w.request.verify_calls for w in self.steady)
        return (
            1 + sum(w.request.correct_drafts for w in self.steady) / verifies if verifies else None
        )


def walk(
    profile: Profile,
    configuration: Configuration,
    *,
    concurrency: int,
    prompt_tokens: int = 200,
    output_tokens: int = 256,
    output_spread: float = 0.0,
    requests: int = 6,
    max_running_requests: int = 1024,
    seed: int = 0,
) -> Walk:
    """Walks a closed loop of clients that answer at once, all starting together, without noise.

    Args:
        profile: The machine.
        configuration: In canonical form; its flags bound the batches as the server's do.
        concurrency: Clients.
        prompt_tokens: Of every prompt; the prompts are random and share nothing.
        output_tokens: Mean of the answers' lengths; each is two at least.
        output_spread: Largest deviation from that mean, as a share of it; lengths are uniform.
        requests: Of each client, three at least.
        max_running_requests: Requests that run at once.
        seed: Of the prompts.
    """
    facts = facts_of(configuration)
    shape = shape_of(configuration) if configuration.speculation.enabled else (0, 0, 0)
    cycles = Cycles(CostModel(profile, facts), *shape, adaptive_steps(facts, shape[0]))
    scheduler = Scheduler(Limits.of(facts, max_running_requests, profile.kv_tokens))
    rng = random.Random(seed)  # noqa: S311 - prompts, not secrets
    # Lengths have draws of their own: the prompts are the same at every spread.
    lengths = random.Random(f"lengths/{seed}")  # noqa: S311 - reproducible, no secret
    shortest, longest = 1 - output_spread, 1 + output_spread
    known: dict[Request, Walked] = {}
    ended: list[Walked] = []
    now = 0.0

    def send() -> None:
        ids = [rng.randrange(1 << 40) for _ in range(prompt_tokens)]
        limit = round(output_tokens * lengths.uniform(shortest, longest))
        request = make_request(str(now), ids, limit, arrived=now)
        known[request] = Walked(request, now)
        scheduler.waiting.append(request)

    for _ in range(concurrency):
        send()
    to_send = concurrency * (requests - 1)
    while scheduler.busy:
        if (prefill := scheduler.next_prefill()) is not None:
            now += cycles.cost.prefill_ms(prefill.new_tokens)
            for request in scheduler.prefilled(prefill):
                known[request].first_token_ms = now
                request.emit(1)
        else:
            cycle = cycles.next(scheduler.running)
            now += cycle.time.total_ms
            for i, request in enumerate(scheduler.running):
                if cycle.correct:
                    request.record_verify(cycle.correct[i])
                request.emit(1 + (cycle.correct[i] if cycle.correct else 0))
            cycles.verified(cycle)
        for request in scheduler.retire():
            done = known.pop(request)
            done.finished_ms = now
            ended.append(done)
            if to_send:
                to_send -= 1
                send()
    return Walk(tuple(ended), concurrency)


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
