"""A closed loop on a profile's machine, walked without a clock: what the server does, in no time.

It uses the server's own scheduler and cost model, so it says what the profile implies where no
formula does (several requests at once); it is no evidence that those are right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from runners.simulated_server.adaptive import adaptive_steps
from runners.simulated_server.cost import CostModel
from runners.simulated_server.cycles import Cycles
from runners.simulated_server.expectation import facts_of, shape_of
from runners.simulated_server.request import make_request
from runners.simulated_server.scheduler import Limits, Scheduler
from runners.simulated_server.tokens import fingerprint

if TYPE_CHECKING:
    from runners.simulated_server.profile import Profile
    from runners.simulated_server.request import Request
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
        request = _request(ids, round(output_tokens * lengths.uniform(shortest, longest)))
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


def _request(ids: list[int], output_tokens: int) -> Request:
    name = fingerprint(ids)
    return make_request(
        name,
        ids,
        output_tokens,
        stops=False,
        streaming=True,
        arrived=0.0,
        received_at=0.0,
        noise=1.0,
        prompt=name,
    )
