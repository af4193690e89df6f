"""What a window leaves behind to be judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from runners.load.checks.pauses import ClientPauses
from runners.load.window.acceptance import accept_length, largest_accept_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import RequestSample
    from runners.load.prompts.prompts import Prompt
    from runners.load.window.in_flight import InFlightRequest
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload


@dataclass(frozen=True)
class Evidence:
    """One window, as every check sees it. Built once per window; figures are derived on demand.

    Attributes:
        samples: Its requests in the server's own time, in the order of sending.
        flights: The same requests as the client saw them, in the same order, in real time.
        prompts: Its prompts, as rendered.
        point: The operating point.
        workload: What was asked for.
        speculation: What the server says it runs.
        opened: The client's clock when it opened.
        closed: The client's clock when it closed.
        window_tokens: Output tokens that arrived between the two.
        time_scale: Server seconds per real second.
        client_cpu_share: CPU of the busiest client process per real second of the window; `None`
            where it was not measured.
        client_pauses: When the client processes did not run.
        adaptive_steps: Draft steps between which the server switches by itself
            (`--speculative-adaptive`); empty where they are fixed.
        running_limit: Requests that the server runs at once; `None` where it does not say.
        ramp_prompts: What the ramp sent, as rendered.
        whole_lives: Requests that began and ended inside the window.
        ramp: Requests with which the lanes of a closed loop began before the window; they are in
            no sample.
        decode_s: Real seconds per verify (per token without speculation) in the last pass of the
            warm-up; `None` without a warm-up.
    """

    samples: Sequence[RequestSample]
    flights: Sequence[InFlightRequest]
    prompts: Sequence[Prompt]
    point: OperatingPoint
    workload: Workload
    speculation: Speculation
    opened: float
    closed: float
    window_tokens: int
    time_scale: float = 1.0
    client_cpu_share: float | None = None
    client_pauses: ClientPauses = field(default_factory=ClientPauses)
    adaptive_steps: tuple[int, ...] = ()
    running_limit: int | None = None
    ramp: Sequence[InFlightRequest] = ()
    whole_lives: int = 1
    ramp_prompts: Sequence[Prompt] = ()
    decode_s: float | None = None

    @cached_property
    def good(self) -> tuple[RequestSample, ...]:
        """The requests that succeeded."""
        return tuple(sample for sample in self.samples if sample.error is None)

    @cached_property
    def sent(self) -> tuple[InFlightRequest, ...]:
        """All requests, those of the ramp included."""
        return (*self.ramp, *self.flights)

    @cached_property
    def failed(self) -> tuple[InFlightRequest, ...]:
        """The requests that failed, those of the ramp included."""
        return tuple(flight for flight in self.sent if flight.error is not None)

    @cached_property
    def retractions(self) -> dict[str, int]:
        """How often the server took an answer back, of the prompts where it did."""
        return {
            flight.prompt: flight.answer.retractions
            for flight in self.flights
            if flight.answer is not None and flight.answer.retractions
        }

    @cached_property
    def most_in_flight(self) -> int:
        """Most requests that were on their way at one instant."""
        # Where one ends as another is sent, the end comes first.
        changes = [(flight.sent, 1) for flight in self.sent]
        changes += [(flight.last, -1) for flight in self.sent]
        return max(accumulate(change for _, change in sorted(changes)), default=0)

    @property
    def window_s(self) -> float:
        """Length of the window in the server's own time."""
        return (self.closed - self.opened) * self.time_scale

    @cached_property
    def accept_length(self) -> float | None:
        """Tokens per verify over the successful requests; `None` without a verify."""
        return accept_length(
            sum(sample.verify_calls for sample in self.good),
            sum(sample.correct_drafts for sample in self.good),
        )

    @property
    def largest_accept_length(self) -> int | None:
        """The bound that no real accept length exceeds; `None` where it is not known."""
        return largest_accept_length(self.speculation, self.adaptive_steps)

    @property
    def may_decode_plainly(self) -> bool:
        """Whether the server may generate without a verify although it speculates.

        An adaptive server does at 0 steps, which its defaults take from batch size 8 on (0.5.23).
        """
        return 0 in self.adaptive_steps


Check = Callable[[Evidence], str | None]
"""What was seen, in words, without the code; `None` where nothing is wrong."""


def reports(checks: dict[str, Check], evidence: Evidence) -> tuple[str, ...]:
    """Runs `checks` in order; each finding as `"code: what was seen"`."""
    found = ((code, check(evidence)) for code, check in checks.items())
    return tuple(f"{code}: {seen}" for code, seen in found if seen is not None)
