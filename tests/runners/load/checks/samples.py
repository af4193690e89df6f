"""Evidence of single requests, for checks of counts."""

from __future__ import annotations

from results.records import RequestSample
from runners.load.checks.evidence import Evidence
from runners.load.http.in_flight import InFlightRequest
from search_spaces.workload import OperatingPoint, Workload


def window(samples, speculation, *, output_tokens=8):
    """Those requests and nothing else."""
    point = OperatingPoint(1)
    workload = Workload((("chat", 1.0),), output_tokens, (point,))
    flights = [InFlightRequest(one.prompt, b"") for one in samples]
    return Evidence(
        samples, flights, [], point, workload, speculation, opened=0.0, closed=1.0, window_tokens=8
    )


def sample(**more):
    values = {
        "prompt": "a",
        "sent_s": 0.0,
        "ttft_s": 0.1,
        "e2e_s": 1.0,
        "prompt_tokens": 10,
        "completion_tokens": 8,
    }
    return RequestSample(**(values | more))
