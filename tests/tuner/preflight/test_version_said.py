"""A sweep says when it meets an SGLang whose figures' names and meanings nobody read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.replay.runner import ReplayRunner
from tuner.loop.progress import Silent

from .. import replays


@pytest.mark.parametrize(
    ("server", "said"),
    [(("0.6.1", False), 1), (("0.5.17", False), 0), (("0.6.1", True), 0)],
)
def test_an_unread_version_is_named_once(small, store, monkeypatch, server, said):
    version, simulated = server

    class Kept(Silent):
        messages: list[str] = []  # noqa: RUF012 - one sweep's

        def message(self, text):
            self.messages.append(text)

    class Other(ReplayRunner):
        def start(self, intent, on_process, on_progress=None):
            session = super().start(intent, on_process, on_progress)
            session.resolved = replace(
                session.resolved, sglang_version=version, simulated=simulated
            )
            return session

    monkeypatch.setattr(replays, "Silent", Kept)
    study = small()
    replays.play(study, store, Other(replays.table(study), study))
    notes = [text for text in Kept.messages if text.startswith(f"SGLang {version}: ")]
    assert len(notes) == said
