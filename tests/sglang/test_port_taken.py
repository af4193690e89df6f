"""Launch on the port of another SGLang server."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.base import RunnerError
from runners.conformance import marked_pids
from runners.load.window.watches import identity_of
from runners.sglang.runner import SGLangRunner

from .servers import KINDS

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]


@pytest.mark.kind("plain")
def test_taken_port_is_a_fault_of_the_host(server, tmp_path, intent, monkeypatch):
    """SGLang 0.5.23 binds last, and logs that it is ready if its warm-up reached another server."""
    before = identity_of(server.info())
    monkeypatch.setattr("runners.sglang.process_runner.free_port_block", lambda: server.port)
    wanted = intent(KINDS["plain"].configuration)
    with pytest.raises(RunnerError) as caught:
        SGLangRunner(server.study, seed=0, log_dir=tmp_path).start(wanted, lambda *_: None)
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("port_taken", "host")
    assert marked_pids(wanted.mark) == []
    assert "fired up and ready to roll" in Path(wanted.log).read_text()
    # The other server only got a generation from SGLang's warm-up.
    assert identity_of(server.info()) == before
    assert server.session.resolved.server_info["port"] == server.port
