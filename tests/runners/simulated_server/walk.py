"""Expected results of a profile: the scheduler and the cost model without a clock.

They show what a profile implies, not that the profile is right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.adaptive import adaptive_steps
from runners.simulated_server.engine.cost import CostModel, Cycles
from runners.simulated_server.engine.request import make_request
from runners.simulated_server.engine.scheduler import Limits, Scheduler

if TYPE_CHECKING:
    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.engine.request import Request
    from search_spaces.configuration import Configuration


@dataclass(slots=True)
class Walked:
    """Times of one request, in milliseconds after the start of the walk."""

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
    """Requests of a closed loop, in the order of their ends."""

    requests: tuple[Walked, ...]
    concurrency: int

    @property
    def steady(self) -> tuple[Walked, ...]:
        """All requests except the first and the last of every client."""
        return self.requests[self.concurrency : -self.concurrency]

    @property
    def output_tok_s(self) -> float:
        """Tokens of the steady requests per second, from the end of the request before them."""
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
    """Walk a closed loop without noise: all clients start together and answer at once.

    Args:
        profile: The simulated machine.
        configuration: In canonical form; its flags limit the batches.
        concurrency: Number of clients.
        prompt_tokens: Tokens of every prompt; prompts are random and share no prefix.
        output_tokens: Mean tokens of the answers, at least 2.
        output_spread: Largest relative deviation from that mean; lengths are uniform.
        requests: Requests of each client, at least 3.
        max_running_requests: Limit of running requests.
        seed: Seed of the prompts.
    """
    facts = facts_of(configuration)
    shape = shape_of(configuration) if configuration.speculation.enabled else (0, 0, 0)
    cycles = Cycles(CostModel(profile, facts), *shape, adaptive_steps(facts, shape[0]))
    scheduler = Scheduler(Limits.of(facts, max_running_requests, profile.kv_tokens))
    rng = random.Random(seed)
    # A separate generator for the lengths: the prompts are equal at every spread.
    lengths = random.Random(f"lengths/{seed}")
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


def facts_of(configuration: Configuration) -> dict[str, Any]:
    """Return the facts of a configuration for the profile's conditions."""
    speculation = configuration.speculation
    facts: dict[str, Any] = {
        name.replace("-", "_"): value
        for name, value in (*configuration.flags, *configuration.env)
        if value is not None
    }
    if speculation.enabled:
        facts |= {k: v for k, v in speculation.to_dict().items() if v is not None}
    return facts


def shape_of(configuration: Configuration) -> tuple[int, int, int]:
    """Return steps, topk and draft tokens of a configuration with speculation.

    Raises:
        ValueError: A number is missing.
    """
    speculation = configuration.speculation
    steps, topk = speculation.num_steps, speculation.topk
    width = speculation.num_draft_tokens
    if width is not None and speculation.algorithm in {"NGRAM", "DFLASH"}:
        steps, topk = steps or 1, topk or 1  # only the draft tokens matter
    if steps is None or topk is None or width is None:
        raise ValueError("num_steps, topk or num_draft_tokens is missing; set all three")
    return steps, topk, width
