"""Arrival times of an open loop: a Poisson process, or a trace of timestamps.

An open loop sends each request when it is due, whatever the server does. So an overloaded server
shows a growing queue; a closed loop would wait for it.
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
"""Keys of Mooncake and AIPerf traces, whose timestamps are in milliseconds."""

LONGEST_S = 7 * 86_400.0
"""Longest window. A longer one means a wrong unit in a trace, or a typing error in a rate."""

LONGEST_MEAN_GAP_S = 60.0
"""Longest mean time between arrivals. A longer time loads no server: the unit is probably wrong."""


class ArrivalTraceError(ValueError):
    """A trace of arrival times cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ArrivalProcess:
    """Arrival times of one window.

    Attributes:
        times: Arrival time of each request in server seconds, ascending; the first is 0.
        stationary: Whether the rate is constant, so that the first arrivals, which meet an empty
            server, can be the ramp. A trace is replayed without a ramp.
        note: Sentence for the user about the interpretation of a trace; `None` for no note.
    """

    times: tuple[float, ...]
    stationary: bool
    note: str | None = None


def poisson(rate: float, count: int, seed: int) -> ArrivalProcess:
    """Draw `count` arrivals with independent, exponentially distributed gaps.

    The gaps of a seed are those of rate 1 divided by `rate`. So every configuration gets the same
    arrivals, and two rates get the same pattern.

    Args:
        rate: Arrivals per server second.
        count: Number of arrivals.
        seed: Selects the gaps; a longer process begins with every shorter one.

    Raises:
        ValueError: `rate` is not a positive number.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"a request rate must be a positive number, not {rate}")
    rng = random.Random(f"arrivals/{seed}")  # noqa: S311 - a reproducible load, no secret
    gaps = (rng.expovariate(1.0) / rate for _ in range(count - 1))
    return ArrivalProcess(tuple(itertools.accumulate(gaps, initial=0.0))[:count], stationary=True)


def read_trace(path: str | Path) -> ArrivalProcess:
    """Read the arrival times in a file, one per line; empty lines are skipped.

    A line is a number, or a JSON object with a number `timestamp`. Times are ascending, in seconds,
    from any origin. Rows with `input_length`, `output_length` or `hash_ids` are a Mooncake or
    AIPerf trace: their unit is milliseconds, and their lengths are not used.

    Raises:
        ArrivalTraceError: The file cannot be read, a line is not a valid time, or rows with and
            without lengths are mixed.
    """
    try:
        lines = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ArrivalTraceError(f"cannot read the trace {path}: {reason}") from error
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
                f"its time is in milliseconds; line {s} has no lengths, so its time is in seconds. "
                "Use one format for all rows"
            )
        if times and time < times[-1]:
            raise ArrivalTraceError(
                f"{where}: {time:.17g} is earlier than the previous time {times[-1]:.17g}; sort "
                "the trace"
            )
        times.append(time)
    if not times:
        raise ArrivalTraceError(f"the trace {path} has no arrival times")
    per_s = 1000.0 if first_keys else 1.0
    note = (
        f"{path} is a Mooncake or AIPerf trace (it has {first_keys[0]!r}): its timestamps are in "
        "milliseconds, and its lengths are not used. For seconds, keep only `timestamp`"
        if first_keys
        else None
    )
    relative = tuple((time - times[0]) / per_s for time in times)
    return ArrivalProcess(relative, stationary=False, note=note)


def arrivals_of(point: OperatingPoint, workload: Workload, seed: int) -> ArrivalProcess:
    """Return the arrivals of one window at an open operating point.

    Args:
        point: Operating point with a `request_rate` or a `trace`.
        workload: Defines the number of requests and the folder of relative paths.
        seed: Seed of a Poisson process.

    Raises:
        ArrivalTraceError: The trace cannot be used, has fewer arrivals than the window needs, or
            the arrivals are implausibly rare.
        ValueError: The point is a closed loop.
    """
    count = workload.requests_at(point)
    if point.request_rate is not None:
        process = poisson(point.request_rate, count, seed)
        if process.times[-1] > LONGEST_S:
            raise ArrivalTraceError(
                f"{count} arrivals at {point.request_rate:g} requests/s take "
                f"{process.times[-1]:.3g} s, over a week; use a higher rate or fewer `requests`"
            )
        if count > 1 and 1 / point.request_rate > LONGEST_MEAN_GAP_S:
            raise ArrivalTraceError(
                f"{point.request_rate:g} requests/s is one request in "
                f"{1 / point.request_rate:.3g} s; use a rate with a mean gap of "
                f"{LONGEST_MEAN_GAP_S:g} s or less, in requests per second"
            )
        return process
    if point.trace is None:
        raise ValueError("a closed loop has no arrivals")
    path = workload.path(point.trace)
    trace = read_trace(path)
    if len(trace.times) < count:
        raise ArrivalTraceError(
            f"the trace {path} has {len(trace.times)} arrivals, but a window sends {count} "
            "requests; lower `requests`, or use a longer trace"
        )
    times = trace.times[:count]
    if not times[-1] <= LONGEST_S:
        raise ArrivalTraceError(
            f"the first {count} arrivals of the trace {path} take {times[-1]:.3g} s, over a week; "
            f"{_unit_advice(trace)}"
        )
    if count > 1 and (gap := times[-1] / (count - 1)) > LONGEST_MEAN_GAP_S:
        raise ArrivalTraceError(
            f"the first {count} arrivals of the trace {path} take {times[-1]:.6g} s, one in "
            f"{gap:.3g} s; the mean gap must be {LONGEST_MEAN_GAP_S:g} s or less; "
            f"{_unit_advice(trace)}"
        )
    return replace(trace, times=times)


def _unit_advice(trace: ArrivalProcess) -> str:
    """Return the remedy for a trace with implausibly rare arrivals."""
    if trace.note is not None:
        return "rows with lengths have times in milliseconds; check the timestamps"
    return "times are in seconds; divide milliseconds by 1000"


def _arrival(line: bytes, where: str) -> tuple[float, tuple[str, ...]]:
    """Parse one line: its time, and its length keys."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        text = line[:40].decode("utf-8", "replace")
        raise ArrivalTraceError(f"{where}: {text!r} is not a number or a JSON object") from error
    keys: tuple[str, ...] = ()
    if isinstance(value, dict):
        if _KEY not in value:
            raise ArrivalTraceError(f"{where}: the object has no {_KEY!r}")
        keys = tuple(key for key in _LENGTH_KEYS if key in value)
        value = value[_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArrivalTraceError(f"{where}: {value!r} is not a number")
    return float(value), keys
