"""Without a server, tests that need one fail and say why; they are not passed over."""

from __future__ import annotations

import pytest

from . import postgres_server
from .postgres_server import NoServerError, running_server

pytestmark = pytest.mark.slow


def test_without_binaries_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres_server, "_candidates", list)
    with (
        pytest.raises(NoServerError, match=r"none is installed.*make install.*WITHOUT_POSTGRES=1"),
        running_server(),
    ):
        pass


def test_binaries_that_do_not_run_are_named(monkeypatch, tmp_path):
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(postgres_server, "_candidates", lambda: [tmp_path])
    with pytest.raises(NoServerError, match=str(tmp_path)), running_server():
        pass


def test_a_server_that_cannot_start_says_why(monkeypatch, postgres):
    monkeypatch.setattr(postgres_server, "_initialize", lambda *_: None)
    with pytest.raises(NoServerError, match="does not start"), running_server():
        pass
