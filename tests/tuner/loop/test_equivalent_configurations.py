"""Points that need no launch: which, when that is known, and what is stored of them."""

from __future__ import annotations

import pytest

from results.records import (
    Failure,
    Launch,
    LaunchIntent,
    LaunchState,
    Machine,
    Purpose,
    Trial,
    TrialState,
)
from results.studies import NewStudy
from search_spaces.configuration import Configuration
from search_spaces.nccl.all_reduce import NCCL_UNUSED
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from tuner.loop.equivalent_configurations import EquivalentConfigurations

from ..init.init_machines import topology

OFF = "disable-custom-all-reduce"
STUDY = f"""\
study: two
model: {{path: some/llama, draft: some/draft, family: other}}
server: {{flags: {{tp-size: 2, max-running-requests: 8}}}}
space:
  speculation:
    - algorithm: none
    - {{algorithm: EAGLE3, num_steps: [2, 4], topk: 1}}
  flags: {{{OFF}: [null, true]}}
  env: {{NCCL_PROTO: PROTOCOLS, OMP_NUM_THREADS: [null, "2"]}}
workload: {{prompts: {{chat: 1}}, output_tokens: 64}}
budget: {{launches: 24}}
"""
OWN = "[x TP0] All Reduce config: symmetric_memory = 80.01 MB, local_buffer = 2.00 MB\n"
READY = "The server is fired up and ready to roll!\n"


@pytest.fixture
def posed(tmp_path):
    """A study's knowledge, its space, and a way to end launches with a log."""

    class Posed:
        def __init__(self, protocols: str) -> None:
            self.study = parse_study(STUDY.replace("PROTOCOLS", protocols), "two")
            self.space = Space(self.study)
            self.baselines = baselines(self.study)
            self.same = EquivalentConfigurations(self.study, self.space, self.baselines)
            self.launches: list[Launch] = []

        def launch(self, configuration: Configuration, log: str | None, *, ready=True) -> bool:
            number = len(self.launches)
            path = tmp_path / f"{number}.log"
            if log is not None:
                path.write_text(log)
            intent = LaunchIntent(configuration, (), str(number), str(path))
            state = LaunchState.COMPLETE if ready else LaunchState.INFEASIBLE
            done = Launch(number, state, intent, ready_s=1.0 if ready else None)
            self.launches.append(done)
            return self.same.learn(self.launches)

        def inactive(self, *trials: Trial) -> dict[Configuration, Failure]:
            return dict(self.same.inactive(trials))

    return lambda protocols="[null, LL, Simple]": Posed(protocols)


def trial(configuration, number=0, state=TrialState.COMPLETE):
    return Trial(number, Purpose.SEARCH, state, configuration)


def of(point):
    return dict(point.flags)[OFF], dict(point.env)["NCCL_PROTO"]


def test_nothing_is_inactive_before_a_server_was_seen(posed):
    two = posed()
    assert two.inactive() == {}
    assert not two.same.learn([])


def test_all_but_the_plain_points_where_the_kernel_runs(posed):
    two = posed()
    none = two.baselines["none"]
    assert two.launch(none, OWN + READY)
    found = two.inactive(trial(none))
    assert {of(point) for point in found} == {(None, "LL"), (None, "Simple")}
    # none and two depths, two numbers of threads, two protocols: what is no variable of NCCL counts
    assert len(found) == 3 * 2 * 2
    left = [point for point in two.space if point not in found]
    assert len(left) == len(two.space) - 12
    for point, failure in found.items():
        assert failure.kind == NCCL_UNUSED
        assert "log of launch 0" in failure.message
        assert "NCCL_PROTO has no effect on it" in failure.message
        same = f"`{'no speculation' if not point.speculation.enabled else 'EAGLE3'}"
        assert same in failure.message


def test_a_server_without_the_kernel_leaves_all_of_them(posed):
    two = posed()
    assert not two.launch(two.baselines["none"], READY)
    assert two.inactive() == {}
    # Seen once, so nothing needs to be launched first any more
    chosen = next(p for p in two.space if of(p) == (None, "LL"))
    assert two.same.measured_first(chosen, set()) == chosen


def test_what_was_judged_stays_and_unfinished_trials_are_told(posed):
    two = posed()
    two.launch(two.baselines["none"], OWN)
    judged = next(p for p in two.space if of(p) == (None, "LL"))
    waiting = next(p for p in two.space if of(p) == (None, "Simple"))
    found = two.inactive(trial(judged), trial(waiting, 1, TrialState.RUNNING))
    assert judged not in found
    assert waiting in found
    again = two.inactive(*(trial(p, n, TrialState.INACTIVE) for n, p in enumerate(found)))
    assert not again.keys() & found.keys()


def test_without_a_plain_point_the_first_one_stands_for_all(posed):
    """The baseline sets no variable, so it stands for all that differ from it in NCCL alone."""
    two = posed("[LL, Simple]")
    two.launch(two.baselines["none"], OWN)
    found = two.inactive(trial(two.baselines["none"]))
    none = {p for p in found if not p.speculation.enabled and not dict(p.env)["OMP_NUM_THREADS"]}
    assert {of(p) for p in none} == {(None, "LL"), (None, "Simple")}
    chains = [p for p in found if p.speculation.num_steps == 4]
    assert {of(p) for p in chains} == {(None, "Simple")}


def test_the_plain_point_goes_first_while_nothing_is_known(posed):
    two = posed()
    chosen = next(p for p in two.space if of(p) == (None, "LL"))
    plain = two.same.measured_first(chosen, set())
    assert of(plain) == (None, None)
    assert plain.speculation == chosen.speculation
    assert two.same.measured_first(chosen, {plain.key}) == chosen
    assert two.same.measured_first(plain, set()) == plain
    off = next(p for p in two.space if of(p) == (True, "LL"))
    assert two.same.measured_first(off, set()) == off
    alone = posed("[LL, Simple]")
    chosen = next(p for p in alone.space if of(p) == (None, "LL"))
    assert alone.same.measured_first(chosen, set()) == chosen


def test_a_start_that_failed_tells_what_its_log_tells(posed):
    two = posed()
    assert not two.launch(two.baselines["none"], None, ready=False)
    chosen = next(p for p in two.space if of(p) == (None, "LL"))
    assert two.same.measured_first(chosen, set()) != chosen  # still not known
    assert two.launch(two.baselines["none"], OWN, ready=False)
    assert two.inactive()


def test_a_study_that_varies_nothing_of_nccl_reads_no_log(posed):
    two = posed("[LL]")
    assert not two.launch(two.baselines["none"], OWN)
    assert two.inactive() == {}


def test_what_a_machine_looks_like_tells_beforehand(posed):
    two = posed()
    joined = two.same.expected(Machine(topology=topology(8, "NV18")))
    two.launch(two.baselines["none"], OWN)
    assert joined == two.inactive().keys()
    for shown in (topology(2, "PHB"), topology(4, "SYS", bridged="NV4"), "", None):
        assert two.same.expected(Machine(topology=shown)) == frozenset()


def test_stored_without_a_launch_and_without_budget(store):
    new = NewStudy("s", "", "d", "sd", "simulated", True, 0, "tpe", True, 4, None, "")
    study = store.create_study(new)
    why = Failure(NCCL_UNUSED, "arguments", "configuration", "not launched: because")
    points = [Configuration.of(env={"NCCL_PROTO": name}) for name in ("LL", "Simple")]
    numbers = [store.set_aside(study.id, p, Purpose.SEARCH, why) for p in points]
    trials = store.trials(study.id)
    assert numbers == [t.number for t in trials] == [0, 1]
    assert {t.state for t in trials} == {TrialState.INACTIVE}
    assert [t.configuration for t in trials] == points
    assert all(t.failure == why and t.launches == () and not t.measurements for t in trials)
    assert store.launches_spent(study.id) == 0
    assert store.unfinished(study.id).trials == ()
