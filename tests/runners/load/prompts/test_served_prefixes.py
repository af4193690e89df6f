"""Shared prefixes end to end: what the simulated server's prefix cache makes of them."""

from __future__ import annotations

import itertools
import uuid

import pytest

from results.records import LaunchIntent
from runners.load.prompts.rendering import IdentityRenderer
from runners.registry import make_runner
from runners.simulated_server.engine.tokens import tokenize
from search_spaces.configuration import Configuration
from search_spaces.study_file.load import parse_study

pytestmark = pytest.mark.slow

STUDY = """\
study: shared
model: {path: some/model}
space: {speculation: [{algorithm: none}]}
workload:
  prompts: {chat: 1}
  output_tokens: 16
  requests: 16
  shared_prefix: {tokens: 200, groups: 4}
  points: [{concurrency: 1}]
budget: {launches: 2}
runner: simulated
simulated: {profile: kimi, time_scale: 10}
"""


def same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def test_the_cached_share_is_what_the_prompts_have_in_common(tmp_path):
    study = parse_study(STUDY, "shared.yaml")
    runner = make_runner("simulated", study, seed=3, log_dir=tmp_path)
    mark = uuid.uuid4().hex
    intent = LaunchIntent(Configuration.of(), (), mark, str(tmp_path / "log"))
    [point] = study.to_workload().points
    with runner.start(intent, lambda *_: None) as session:
        measurement = session.measure(point)
    # One after the other from a cold cache: a prompt finds what it has in common with an earlier
    # one, but its last token is always computed.
    window = IdentityRenderer().render(runner.prompts.select(16, 3))
    as_tokens = [tokenize(prompt.text) for prompt in window]
    expected = 0
    for index, ids in enumerate(as_tokens):
        common = [
            sum(1 for _ in itertools.takewhile(same, zip(ids, other, strict=False)))
            for other in as_tokens[:index]
        ]
        expected += min(max(common, default=0), len(ids) - 1)
    assert measurement.prompt_tokens == sum(map(len, as_tokens))
    assert measurement.cached_tokens == pytest.approx(expected, rel=0.01)
    # 12 of 16 prompts find their 200 words there.
    assert measurement.cached_tokens > 12 * 200
    assert not [reason for reason in measurement.invalid if reason.startswith("cached_tokens")]
