"""Several settings in one launch of the real SGLang: session and sweep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from results.store import Store
from runners.base import RunnerError
from runners.plugin.status import status_of
from search_spaces.configuration import Setting
from search_spaces.workload import OperatingPoint

from .by_hand import free_port

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

POINT = OperatingPoint(1, requests=4)
FORWARDS = {"draft", "draft_extend", "verify"}


@pytest.mark.kind("switchable")
def test_session_measures_after_each_switch(server):
    """Deeper drafts of the same prompts have longer accepted runs."""
    session = server.session
    lengths = {}
    for steps in (2, 5):
        switches = status_of(server.info()).switches
        resolved = session.apply(Setting(steps))
        assert resolved.configuration.speculation.num_steps == steps
        assert resolved.configuration.speculation.num_draft_tokens == steps + 1
        assert status_of(server.info()).switches == switches + 1
        measurement = session.measure(POINT)
        codes = {reason.split(":")[0] for reason in measurement.invalid}
        assert not codes & {"setting_not_in_force", "accept_length", "acceptance_counts"}
        lengths[steps] = measurement.accept_length
        assert measurement.cycle is not None
        assert measurement.cycle.source == "plugin"
        (batch,) = measurement.cycle.batches
        assert batch.size == 1
        assert set(batch.parts) == {*FORWARDS, "rest"}
        # The clock has the verifies of the window without its warm-up, and up to two cycles that
        # begin before an answer is known to be complete.
        verifies = sum(sample.verify_calls for sample in measurement.samples)
        assert verifies <= batch.parts["verify"].count <= verifies + 2 * len(measurement.samples)
        for name in FORWARDS:
            part = batch.parts[name]
            assert 0 < part.median_s <= part.p95_s
            assert part.graph_share == 0.0, "a CPU has no graphs"
        whole = batch.cycle.total_s
        assert sum(batch.parts[name].total_s for name in FORWARDS) < 1.5 * whole
        assert whole < measurement.window_s
    assert 1 < lengths[2] < lengths[5] <= 6


@pytest.mark.kind("switchable")
def test_steps_without_a_state_are_refused(server):
    session = server.session
    before = session.resolved.configuration
    with pytest.raises(RunnerError) as caught:
        session.apply(Setting(4))
    assert caught.value.failure.kind == "switch_refused"
    assert "there are states for 1,2,3,5 only" in caught.value.failure.message
    with pytest.raises(RunnerError) as caught:
        session.apply(Setting(3, 6))
    assert "did not switch to 3 draft steps and 6 draft tokens" in caught.value.failure.message
    assert session.resolved.configuration == before
    states = status_of(session.resolved.server_info).states
    assert {setting: cost.build_s > 0 for setting, cost in states.items()} == {
        Setting(1): True, Setting(2): True, Setting(3): True, Setting(5): False
    }  # fmt: skip


STUDY = """\
study: hot
model: {{path: {models}/tiny, draft: {models}/noisy, family: llama}}
server:
  python: {python}
  flags:
    device: cpu
    dtype: float32
    disable-cuda-graph: true
    max-total-tokens: 20000
    max-running-requests: 16
    port: {port}
  env: {{SGLANG_USE_CPU_ENGINE: "1", HF_HUB_OFFLINE: "1", OMP_NUM_THREADS: "1"}}
space:
  speculation:
    - algorithm: none
    - {speculation}
workload:
  prompts: {{chat: 0.5, code: 0.5}}
  output_tokens: 48
  points: [{{concurrency: 1}}]
  requests: 8
budget: {{launches: 8, hours: 1}}
objective: {{maximize: output_tok_s}}
runner: sglang
"""


CHAINS = "{algorithm: STANDALONE, num_steps: {from: 1, to: 5}, topk: 1}"
TREES = "{algorithm: STANDALONE, num_steps: [2, 3], topk: 2, num_draft_tokens: [4, 6]}"


def accept_lengths(report: dict[str, Any]) -> dict[tuple[int, int, int], float]:
    """Accept lengths by topk, steps and draft tokens."""
    names = ("topk", "num_steps", "num_draft_tokens")
    return {
        tuple(speculation[name] for name in names): trial["accept_length"]
        for trial in report["trials"]
        if (speculation := trial["configuration"]["speculation"])["algorithm"] != "none"
    }


@pytest.mark.sglang_long
@pytest.mark.parametrize(
    ("speculation", "trials", "drafts"),
    [
        # No speculation, SGLang's default (3 steps; the reference run), one launch for the others.
        (CHAINS, [1, 1, 5], {(1, steps, steps + 1) for steps in range(1, 6)}),
        # The default is a chain, so one of the trees is launched as reference run.
        (TREES, [1, 1, 1, 4], {(1, 3, 4), (2, 2, 4), (2, 2, 6), (2, 3, 4), (2, 3, 6)}),
    ],
    ids=["chains", "trees"],
)
def test_hot_switching_and_separate_launches_accept_the_same(
    cpu_server, tuner, speculation, trials, drafts
):
    (tuner.folder / "hot.yaml").write_text(
        STUDY.format(
            models=cpu_server.models,
            python=cpu_server.python,
            port=free_port(),
            speculation=speculation,
        )
    )
    sweep = ("sweep", "--study", "./hot.yaml", "--json")
    hot, alone = (
        json.loads(tuner.run(*sweep, *more, timeout=1200).stdout)
        for more in ((), ("--name", "alone", "--no-hot-switch"))
    )
    for report in (hot, alone):
        assert report["budget"]["stopped"] == "exhausted"
        # A busy machine may make a window unsteady; acceptance does not depend on it.
        assert {trial["state"] for trial in report["trials"]} <= {"complete", "invalid"}
    assert [len(launch["trials"]) for launch in hot["launches"]] == trials
    assert [len(launch["trials"]) for launch in alone["launches"]] == [1] * len(alone["trials"])
    (check,) = hot["hot_switch"]["checks"]
    assert check["faithful"]
    own = accept_lengths(alone)
    assert set(own) == drafts
    # Greedy answers in 32-bit arithmetic: the same to the last draft.
    assert accept_lengths(hot) == own
    exported = tuner.run("export", "--study", "hot", "--trial", "2").stdout
    assert "TUNER" not in exported
    assert "PYTHONPATH" not in exported
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        for name in ("hot", "alone"):
            for trial in store.trials(store.study(name).id):
                (measurement,) = trial.measurements
                assert measurement.cycle is not None
                (batch,) = measurement.cycle.batches
                forwards = FORWARDS if trial.configuration.speculation.enabled else {"verify"}
                assert set(batch.parts) == {*forwards, "rest"}
