"""Version and limits of the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.running_server import bench, find_target
from runners.server_info import running_limit_of
from search_spaces.workload import OperatingPoint, Workload

from .servers import VERSION

if TYPE_CHECKING:
    from .servers import LiveServer

pytestmark = [pytest.mark.sglang, pytest.mark.kind("plain")]


class Numbers(PromptSource):
    """Prompts without a common prefix."""

    def select(self, count, seed):
        return tuple(Prompt(f"{n}", f"{n:03d}{999 - n} is a number.") for n in range(count))


def test_version_of_the_server_is_verified(server: LiveServer):
    target = find_target(server.url)
    assert target.facts.version == VERSION
    assert target.unchecked == ()


def test_concurrency_above_the_running_limit_warns_of_a_queue(server: LiveServer):
    limit = server.study.server.flags["max-running-requests"]
    assert running_limit_of(server.info()) == limit

    def warned(concurrency):
        point = OperatingPoint(concurrency, requests=concurrency)
        load = Workload((("numbers", 1.0),), 16, (point,), warmup_requests=0)
        measured = bench(server.url, load, point, prompts=Numbers())
        assert measured.failed_requests == 0
        return "queued" in {warning.split(":")[0] for warning in measured.warnings}

    assert warned(limit + 4)
    assert not warned(limit)
