"""When the requests of an open loop arrive: a Poisson process, or a trace of timestamps.

An open loop sends a request when it is due, whatever the server does: a server that falls behind
is shown by its queue, where a closed loop would politely wait for it.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from search_spaces.workload import OperatingPoint, Workload

_KEY = "timestamp"

LONGEST_S = 7 * 86_400.0
"""Of one window. Beyond it a trace is not in seconds, or a rate is a slip of the pen."""

LONGEST_MEAN_GAP_S = 60.0
"""Between two arrivals. Slower ones load no server: most likely a trace is in milliseconds."""


class ArrivalTraceError(ValueError):
    """A trace of arrival times cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ArrivalProcess:
    """When requests are due.

    Attributes:
        times: Seconds of the server's own time after the first arrival, one for each request; the
            first is 0, and they never fall.
        stationary: Whether the rate is the same throughout, so that the first arrivals, which
            meet an empty server, may be taken as a ramp. A trace is replayed for what it is.
    """

    times: tuple[float, ...]
    stationary: bool


def poisson(rate: float, count: int, seed: int) -> ArrivalProcess:
    """`count` arrivals with independent, exponentially distributed gaps.

    The gaps of a seed are those of rate 1 divided by `rate`, so that every configuration meets
    the same arrivals, and two rates the same pattern.

    Args:
        rate: Arrivals per second of the server's own time.
        count: How many.
        seed: Decides the gaps; a longer process begins with every shorter one.

    Raises:
        ValueError: `rate` is not a positive number.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"a request rate must be a positive number, not {rate}")
    rng = random.Random(f"arrivals/{seed}")  # noqa: S311 - a reproducible load, no secret
    gaps = (rng.expovariate(1.0) / rate for _ in range(count - 1))
    return ArrivalProcess(tuple(itertools.accumulate(gaps, initial=0.0))[:count], stationary=True)


def read_trace(path: str | Path) -> ArrivalProcess:
    """The arrival times in a file, one to a line; empty lines are skipped.

    A line is a number, or a JSON object with a number `timestamp` (other keys are ignored): seconds
    from any origin, never falling. They are replayed at their own pace, from the first one on.

    Raises:
        ArrivalTraceError: The file cannot be read, or a line is not such a time.
    """
    try:
        lines = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ArrivalTraceError(f"the trace {path} cannot be read: {reason}") from error
    times: list[float] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        time = _timestamp(line, f"{path}, line {number}")
        if times and time < times[-1]:
            raise ArrivalTraceError(
                f"{path}, line {number}: {time:.17g} is earlier than the time before it "
                f"({times[-1]:.17g}): sort the trace"
            )
        times.append(time)
    if not times:
        raise ArrivalTraceError(f"the trace {path} has no arrival times")
    return ArrivalProcess(tuple(time - times[0] for time in times), stationary=False)


def arrivals_of(point: OperatingPoint, workload: Workload, seed: int) -> ArrivalProcess:
    """The arrivals of one window at an open operating point.

    Args:
        point: With a `request_rate` or a `trace`.
        workload: Says how many requests a window sends, and where paths start from.
        seed: Of a Poisson process.

    Raises:
        ArrivalTraceError: The trace cannot be used, or has fewer arrivals than the window needs;
            or arrivals are so rare that they cannot be meant.
        ValueError: The point is a closed one.
    """
    count = workload.requests_at(point)
    if point.request_rate is not None:
        process = poisson(point.request_rate, count, seed)
        if process.times[-1] > LONGEST_S:
            raise ArrivalTraceError(
                f"{count} arrivals at {point.request_rate:g} requests/s take "
                f"{process.times[-1]:.3g} s, over a week: give a higher rate or fewer `requests`"
            )
        if count > 1 and 1 / point.request_rate > LONGEST_MEAN_GAP_S:
            raise ArrivalTraceError(
                f"{point.request_rate:g} requests/s is one in {1 / point.request_rate:.3g} s: give "
                f"a rate with a mean gap of {LONGEST_MEAN_GAP_S:g} s or less, in requests a second"
            )
        return process
    if point.trace is None:
        raise ValueError("a closed loop has no arrivals")
    path = workload.path(point.trace)
    trace = read_trace(path)
    if len(trace.times) < count:
        raise ArrivalTraceError(
            f"the trace {path} has {len(trace.times)} arrivals, but a window sends {count} "
            "requests: lower `requests`, or give a longer trace"
        )
    times = trace.times[:count]
    if not times[-1] <= LONGEST_S:
        raise ArrivalTraceError(
            f"the first {count} arrivals of the trace {path} take {times[-1]:.3g} s, over a week: "
            "its times must be seconds, not milliseconds"
        )
    if count > 1 and (gap := times[-1] / (count - 1)) > LONGEST_MEAN_GAP_S:
        raise ArrivalTraceError(
            f"the first {count} arrivals of the trace {path} take {times[-1]:.6g} s, one in "
            f"{gap:.3g} s: are these milliseconds? Its times must be seconds, with a mean gap of "
            f"{LONGEST_MEAN_GAP_S:g} s or less"
        )
    return ArrivalProcess(times, trace.stationary)


def _timestamp(line: bytes, where: str) -> float:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        text = line[:40].decode("utf-8", "replace")
        raise ArrivalTraceError(f"{where}: {text!r} is neither a number nor JSON") from error
    if isinstance(value, dict):
        if _KEY not in value:
            raise ArrivalTraceError(f"{where}: the object has no {_KEY!r}")
        value = value[_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArrivalTraceError(f"{where}: {value!r} is not a number of seconds")
    return float(value)
