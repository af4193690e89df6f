"""The plugin, the long form: every switched depth beside a launch of its own, and EAGLE-3."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from results.records import LaunchIntent
from runners.sglang import SGLangRunner
from search_spaces.configuration import Configuration, Setting, Speculation

from .servers import generation, study_of
from .test_plugin import TEXT, TOKENS, answer, seen_of, switch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from search_spaces.study import Study

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(3600)]


def answers(
    study: Study, folder: Path, speculation: Speculation, steps: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """What a launch says at its own steps, or after a switch to each of `steps`."""
    configuration = Configuration.of(speculation, draft_tp=1)
    settings = tuple(map(Setting, steps))
    runner = SGLangRunner(study, seed=0, log_dir=folder)
    log = folder / f"{speculation.num_steps}-{len(steps)}.log"
    begun: list[Any] = []
    session = runner.start(
        LaunchIntent(configuration, settings, uuid.uuid4().hex, str(log)),
        lambda process, _: begun.append(process),
    )
    found = []
    try:
        for setting in settings or (Setting(speculation.num_steps),):
            session.apply(setting)
            got = httpx.post(
                f"http://127.0.0.1:{begun[0].port}/generate",
                json=generation(TEXT, TOKENS),
                timeout=240,
                trust_env=False,
            )
            found.append(seen_of(got.json()))
    finally:
        session.close()
    return found


@pytest.mark.kind("switchable")
def test_each_switched_depth_is_what_its_own_launch_is(live, cpu_server, tmp_path):
    server = live("switchable")
    switched = {}
    for steps in (1, 2, 5):
        switch(server, steps)
        switched[steps] = answer(server)
    live.discard()
    for steps, seen in switched.items():
        speculation = Speculation("STANDALONE", steps, 1, steps + 1)
        assert answers(study_of(cpu_server, "standalone"), tmp_path, speculation) == [seen]


def test_eagle_3(cpu_server, tmp_path):
    """A random head drafts nothing that is accepted; the text is the target's at every depth."""
    speculation = Speculation("EAGLE3", 5, 1, 6)
    study = study_of(cpu_server, "switchable")
    head = {"draft": str(cpu_server.models / "eagle3")}
    study = study.model_copy(update={"model": study.model.model_copy(update=head)})
    found = answers(study, tmp_path, speculation, (5, 1, 2, 3, 5))
    assert len({tuple(one["output_ids"]) for one in found}) == 1
    assert found[0] == found[-1]
