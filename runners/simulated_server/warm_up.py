"""SGLang's own warm-up request (0.5.23, `http_server.py`): its answer is counted like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.simulated_server import tokens
from runners.simulated_server.clock import wall_time
from runners.simulated_server.request import make_request

if TYPE_CHECKING:
    from runners.simulated_server.state import SimulatedServer

_PROMPT = "The capital city of France is"
_TOKENS = 8


def count_warm_up(server: SimulatedServer) -> None:
    """Counts the request in `/metrics`; the time that it takes is the profile's `warmup_s`."""
    ids = tokens.tokenize(_PROMPT)
    now = wall_time()
    request = make_request(
        "warm-up",
        ids,
        _TOKENS,
        stops=False,
        streaming=False,
        arrived=0.0,
        received_at=now,
        noise=1.0,
        prompt=tokens.fingerprint(ids),
    )
    request.forward_entry_at = request.prefill_finished_at = now
    server.engine.rehearse(request)
    if server.enable_metrics:
        server.observations.finished(request)
