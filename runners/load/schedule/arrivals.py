"""When the requests of an open loop arrive: a Poisson process, or a trace of timestamps.

An open loop sends a request when it is due, whatever the server does: a server that falls behind
is shown by its queue, where a closed loop would politely wait for it.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from search_spaces.workload import OperatingPoint, Workload

_KEY = "timestamp"

_LENGTH_KEYS = (
    *("input_length", "output_length", "hash_ids"),
    *("input_tokens", "output_tokens", "text_input", "session_id"),
)
"""Keys of Mooncake's and AIPerf's traces, whose timestamps are milliseconds."""

LONGEST_S = 7 * 86_400.0
"""Of one window. A longer one means a wrong unit in a trace, or a slip of the pen in a rate."""

LONGEST_MEAN_GAP_S = 60.0
"""Between two arrivals. Slower ones load no server: most likely the unit of a trace is wrong."""


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
        note: What the user must know about how a trace was read; `None` where nothing is odd.
    """

    times: tuple[float, ...]
    stationary: bool
    note: str | None = None


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
    """Reads the arrival times in a file, one per line; empty lines are skipped.

    A line is a number, or a JSON object with a number `timestamp`, from any origin, never falling.
    The unit is seconds. Rows with `input_length`, `output_length` or `hash_ids` are a Mooncake or
    AIPerf trace: its unit is milliseconds, and its lengths are not used.

    Raises:
        ArrivalTraceError: The file cannot be read, a line is not such a time, or rows with and
            without lengths are mixed.
    """
    try:
        lines = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ArrivalTraceError(f"the trace {path} cannot be read: {reason}") from error
    times: list[float] = []
    first_number = 0
    first_keys: tuple[str, ...] = ()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        time, keys = _arrival(line, where)
        if not times:
            first_number, first_keys = number, keys
        if bool(keys) != bool(first_keys):
            ms, s = (number, first_number) if keys else (first_number, number)
            raise ArrivalTraceError(
                f"{where}: the trace mixes units: line {ms} has {(keys or first_keys)[0]!r}, so "
                f"its time is milliseconds, and line {s} has no lengths, so its time is seconds; "
                "write all rows in one form"
            )
        if times and time < times[-1]:
            raise ArrivalTraceError(
                f"{where}: {time:.17g} is earlier than the time before it "
                f"({times[-1]:.17g}): sort the trace"
            )
        times.append(time)
    if not times:
        raise ArrivalTraceError(f"the trace {path} has no arrival times")
    per_s = 1000.0 if first_keys else 1.0
    note = (
        f"{path} is a Mooncake or AIPerf trace (it has {first_keys[0]!r}): its timestamps are read "
        "as milliseconds, and its lengths are not used; for seconds, leave only `timestamp`"
        if first_keys
        else None
    )
    relative = tuple((time - times[0]) / per_s for time in times)
    return ArrivalProcess(relative, stationary=False, note=note)


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
            f"{_unit_advice(trace)}"
        )
    if count > 1 and (gap := times[-1] / (count - 1)) > LONGEST_MEAN_GAP_S:
        raise ArrivalTraceError(
            f"the first {count} arrivals of the trace {path} take {times[-1]:.6g} s, one in "
            f"{gap:.3g} s; a mean gap of {LONGEST_MEAN_GAP_S:g} s or less is needed: "
            f"{_unit_advice(trace)}"
        )
    return replace(trace, times=times)


def _unit_advice(trace: ArrivalProcess) -> str:
    """What to change in a trace that is too slow to be meant."""
    if trace.note is not None:
        return "its rows have lengths, so its times are read as milliseconds; check its timestamps"
    return "its times are read as seconds; divide milliseconds by 1000"


def _arrival(line: bytes, where: str) -> tuple[float, tuple[str, ...]]:
    """The time in a line as it is written, and which length keys stand beside it."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        text = line[:40].decode("utf-8", "replace")
        raise ArrivalTraceError(f"{where}: {text!r} is neither a number nor JSON") from error
    keys: tuple[str, ...] = ()
    if isinstance(value, dict):
        if _KEY not in value:
            raise ArrivalTraceError(f"{where}: the object has no {_KEY!r}")
        keys = tuple(key for key in _LENGTH_KEYS if key in value)
        value = value[_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArrivalTraceError(f"{where}: {value!r} is not a number")
    return float(value), keys
