"""Start of the real server by the runner: phases, readiness, configuration."""

from __future__ import annotations

import psutil
import pytest

from runners.base import differences
from runners.conformance import marked_pids
from runners.process.ports import is_free
from runners.sglang.runner import SGLangRunner

from .servers import KINDS, VERSION, every_kind

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]


@every_kind
def test_started_server_is_marked_and_ready(server):
    assert server.session.ready_s > 0
    # SGLang renames its processes; the mark in their environment still finds them.
    marked = {psutil.Process(pid).name() for pid in marked_pids(server.identity.mark)}
    assert {"sglang::scheduler", "sglang::detokenizer"} <= marked
    assert not is_free(server.port)


@pytest.mark.kind("standalone")
def test_check_before_a_launch_passes(server, tmp_path):
    assert SGLangRunner(server.study, seed=0, log_dir=tmp_path).check() is None


@every_kind
def test_start_up_phases_are_complete_and_ordered(server):
    phases = [step.phase for step in server.progress]
    loads = 2 if KINDS[server.kind].draft else 1
    begun = ["arguments", "distributed", *["weights", "kv_cache"] * loads, "warmup"]
    # SGLang may log that it is ready after the runner's first generation.
    assert phases in (begun, [*begun, "ready"])
    elapsed = [step.elapsed_s for step in server.progress]
    assert elapsed == sorted(elapsed)
    seconds = sum(seconds for _, seconds in server.session.phases)
    assert seconds == pytest.approx(server.session.ready_s)


@every_kind
def test_server_runs_the_requested_configuration(server):
    asked, resolved = KINDS[server.kind].configuration, server.session.resolved
    assert differences(asked, resolved.configuration) == ()
    assert resolved.configuration == asked
    assert resolved.sglang_version == VERSION
    assert not resolved.simulated
