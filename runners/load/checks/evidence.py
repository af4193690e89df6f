"""The data that checks of a window get, and the registry of these checks.

A check is a function that takes the `Evidence` of a window. The check returns its finding as a
phrase, or `None`. The function's name is the check's code. `@invalidates` marks checks whose
finding makes the window invalid; `@warns` marks checks whose finding is a warning. To add a check,
write the function in a module that `runners/load/window/measurement.py` imports, and describe the
code in `docs/validity.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from runners.load.http.acceptance import accept_length, largest_accept_length
from runners.load.schedule.pauses import ClientPauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import RequestSample
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.prompts.prompts import Prompt
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload


@dataclass(frozen=True, eq=False)
class Evidence:
    """Data of one window; derived figures are computed on demand. Compared by identity.

    Attributes:
        samples: Requests of the window in server time, in the order of sending.
        flights: The same requests in the same order, in real time.
        prompts: Rendered prompts of the window.
        point: Operating point.
        workload: Requested load.
        speculation: Setting that the server reports.
        opened: Clock reading at the start of the window.
        closed: Clock reading at the end of the window.
        window_tokens: Output tokens that arrived in the window.
        time_scale: Server seconds per real second.
        client_cpu_share: CPU seconds of the busiest client process per real second; `None` if not
            measured.
        client_pauses: Times when the client processes did not run.
        adaptive_steps: Draft steps that an adaptive server chooses from
            (`--speculative-adaptive`); empty for fixed steps.
        running_limit: Most requests that the server runs at once; `None` if not reported.
        ramp: Ramp requests of a closed loop, which are in no sample.
        whole_lives: Number of requests that began and ended inside the window.
        ramp_prompts: Rendered prompts of the ramp.
        decode_s: Real seconds per verify (per token without speculation) in the last warm-up pass;
            `None` without a warm-up.
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
        """Samples of the requests that succeeded."""
        return tuple(sample for sample in self.samples if sample.error is None)

    @cached_property
    def good_flights(self) -> tuple[InFlightRequest, ...]:
        """The requests that succeeded."""
        return tuple(flight for flight in self.flights if flight.error is None)

    @cached_property
    def streamed(self) -> tuple[InFlightRequest, ...]:
        """The requests that succeeded with at least one chunk."""
        return tuple(flight for flight in self.flights if flight.is_streamed)

    @cached_property
    def sent(self) -> tuple[InFlightRequest, ...]:
        """All requests, including the ramp's."""
        return (*self.ramp, *self.flights)

    @cached_property
    def failed(self) -> tuple[InFlightRequest, ...]:
        """The requests that failed, including the ramp's."""
        return tuple(flight for flight in self.sent if flight.error is not None)

    @cached_property
    def retractions(self) -> dict[str, int]:
        """Number of retractions of each retracted request, by prompt id."""
        return {
            flight.prompt: flight.answer.retractions
            for flight in self.flights
            if flight.answer is not None and flight.answer.retractions
        }

    @cached_property
    def most_in_flight(self) -> int:
        """Largest number of requests in flight at once."""
        # At equal times the end of a request comes first.
        changes = [(flight.sent, 1) for flight in self.sent]
        changes += [(flight.last, -1) for flight in self.sent]
        return max(accumulate(change for _, change in sorted(changes)), default=0)

    @property
    def length_s(self) -> float:
        """Length of the window in real seconds."""
        return self.closed - self.opened

    @property
    def window_s(self) -> float:
        """Length of the window in server seconds."""
        return self.length_s * self.time_scale

    @property
    def unit(self) -> str:
        """Unit of the pace: `"verify"`, or `"token"` without speculation."""
        return "verify" if self.speculation.enabled else "token"

    @cached_property
    def mean_accept_length(self) -> float | None:
        """Tokens per verify over the successful requests; `None` without a verify."""
        return accept_length(
            sum(sample.verify_calls for sample in self.good),
            sum(sample.correct_drafts for sample in self.good),
        )

    @property
    def largest_accept_length(self) -> int | None:
        """Upper bound of the accept length; `None` if unknown."""
        return largest_accept_length(self.speculation, self.adaptive_steps)

    @property
    def may_decode_plainly(self) -> bool:
        """Whether a speculating server may also decode without a verify.

        An adaptive server does so at 0 steps, its default from batch size 8 on (0.5.23).
        """
        return 0 in self.adaptive_steps


Check = Callable[[Evidence], str | None]

INVALIDATING: dict[str, Check] = {}
"""Checks whose finding makes a window invalid, by code."""

WARNING: dict[str, Check] = {}
"""Checks whose finding is a warning, by code."""


def invalidates(check: Check) -> Check:
    """Register a check whose finding makes a window invalid."""
    INVALIDATING[check.__name__] = check
    return check


def warns(check: Check) -> Check:
    """Register a check whose finding is a warning."""
    WARNING[check.__name__] = check
    return check
