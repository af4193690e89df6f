"""The plugin, long form: every switched setting compared with a separate launch, and EAGLE-3."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from results.records import LaunchIntent
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration, Setting, Speculation

from .servers import generation, study_of
from .test_plugin import TEXT, TOKENS, answer, seen_of, switch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runners.sglang_cpu import CpuServer
    from search_spaces.study_file.study import Study

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(3600)]


def answers(
    study: Study, folder: Path, speculation: Speculation, settings: Sequence[Setting] = ()
) -> list[dict[str, Any]]:
    """Answers of a launch at its setting, or after a switch to each of `settings`."""
    configuration = Configuration.of(speculation, draft_tp=1)
    runner = SGLangRunner(study, seed=0, log_dir=folder)
    mark = uuid.uuid4().hex
    log = folder / f"{mark}.log"
    begun: list[Any] = []
    session = runner.start(
        LaunchIntent(configuration, tuple(dict.fromkeys(settings)), mark, str(log)),
        lambda process, _: begun.append(process),
    )
    found = []
    try:
        for setting in settings or (configuration.setting,):
            resolved = session.apply(setting).configuration
            assert resolved.setting == setting
            assert resolved.speculation.drafter == speculation.drafter
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
def test_switched_chains_answer_like_separate_launches(live, cpu_server, tmp_path):
    server = live("switchable")
    switched = {}
    for steps in (1, 2, 5):
        switch(server, steps)
        switched[steps] = answer(server)
    live.discard()
    for steps, seen in switched.items():
        speculation = Speculation("STANDALONE", steps, 1, steps + 1)
        assert answers(study_of(cpu_server, "standalone"), tmp_path, speculation) == [seen]


def with_the_head(study: Study, cpu: CpuServer) -> Study:
    head = {"draft": str(cpu.models / "eagle3")}
    return study.model_copy(update={"model": study.model.model_copy(update=head)})


TREES = tuple(Setting(*shape) for shape in ((1, 3), (2, 4), (2, 6), (3, 4)))
"""None of them is the largest in both, so the server starts at 3/6."""


def test_switched_trees_answer_like_separate_launches(cpu_server, tmp_path):
    """The draft is the target with noise, so part of each tree is accepted."""
    study = study_of(cpu_server, "switchable")

    def tree(setting: Setting) -> Speculation:
        return Speculation("STANDALONE", setting.num_steps, 2, setting.num_draft_tokens)

    there_and_back = (*TREES, *reversed(TREES))
    switched = answers(study, tmp_path, tree(TREES[0]), there_and_back)
    assert switched == switched[::-1], "the way to a setting does not matter"
    assert len({tuple(one["output_ids"]) for one in switched}) == 1, "greedy text is the target's"
    for setting, seen in zip(TREES, switched, strict=False):
        assert 1 < seen["accept_length"] <= setting.num_steps + 1
        assert answers(study, tmp_path, tree(setting)) == [seen]
    assert len({one["verifies"] for one in switched}) > 1, "otherwise there is nothing to compare"


def test_eagle_3_trees(cpu_server, tmp_path):
    study = with_the_head(study_of(cpu_server, "switchable"), cpu_server)
    there_and_back = (*TREES, *reversed(TREES))
    found = answers(study, tmp_path, Speculation("EAGLE3", 1, 2, 3), there_and_back)
    assert len({tuple(one["output_ids"]) for one in found}) == 1
    assert found == found[::-1]


def test_eagle_3(cpu_server, tmp_path):
    """A random head drafts nothing that is accepted; the text is the target's at every depth."""
    speculation = Speculation("EAGLE3", 5, 1, 6)
    study = with_the_head(study_of(cpu_server, "switchable"), cpu_server)
    found = answers(study, tmp_path, speculation, [Setting(n) for n in (5, 1, 2, 3, 5)])
    assert len({tuple(one["output_ids"]) for one in found}) == 1
    assert found[0] == found[-1]
