"""A real server with an API key, and the client with and without the key."""

from __future__ import annotations

from contextlib import closing

import httpx
import pytest

from runners.base import RunnerError
from runners.load.running_server import bench
from runners.server_info import read_any_server, read_server, refuse_unready
from runners.sglang.session import ServerClient
from search_spaces.workload import OperatingPoint, Workload

from .by_hand import free_port, started

pytestmark = [pytest.mark.sglang, pytest.mark.sglang_long, pytest.mark.timeout(900)]

KEY = "today-key"
WORKLOAD = Workload((("chat", 1.0),), 16, (OperatingPoint(1),), requests=2)


def test_api_key_is_required_except_for_health_and_metrics(cpu_server, tuner):
    port = free_port()
    line = (
        "env SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "
        f"{cpu_server.python} -m sglang.launch_server --model-path {cpu_server.models}/tiny "
        f"--device cpu --dtype float32 --max-total-tokens 20000 --enable-metrics --port {port} "
        f"--api-key {KEY}"
    )
    url = f"http://127.0.0.1:{port}"
    with started(tuner, line, port, api_key=KEY):
        answers = {
            path: httpx.get(url + path, timeout=120, trust_env=False).status_code
            for path in ("/health", "/metrics", "/server_info", "/v1/models", "/flush_cache")
        }
        assert answers == {
            "/health": 200,
            "/metrics": 200,
            "/server_info": 401,
            "/v1/models": 401,
            "/flush_cache": 401,
        }
        refuse_unready(url)
        for key in (None, "another"):
            with pytest.raises(RunnerError) as caught:
                read_any_server(url, api_key=key)
            assert (caught.value.failure.kind, caught.value.failure.fault) == (
                "unauthorized",
                "client",
            )
        assert read_server(url, api_key=KEY).is_sglang
        with closing(ServerClient(url)) as client:
            assert "HTTP 401" in client.generates("a mark", 120)
        measurement = bench(url, WORKLOAD, WORKLOAD.points[0], api_key=KEY)
        assert not [sample.error for sample in measurement.samples if sample.error]
