"""Tests that every planner must pass. Inherit them, implement `make`, and run pytest.

class TestMine(PlannerConformance):
    def make(self, space, launches, seed):
        return MyPlanner(space, launches, seed=seed)
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from results.records import TrialState
from runners.plugin.package import same_but_setting
from search_spaces.configuration import Configuration, Speculation
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from tuner.planners.base import Observation, Stop
from tuner.planners.launches import LaunchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.planners.base import LaunchPlan, Planner

STUDY = """\
study: conformance
model: {path: some/model, draft: some/draft}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: {from: 1, to: 4}, topk: [1, 2], num_draft_tokens: [4]}
  env: {NCCL_PROTO: [null, LL128]}
workload: {prompts: {chat: 1}, output_tokens: 64}
budget: {launches: 24}
"""

CONDITIONED = """\
study: conditioned
model: {path: some/model, draft: some/draft}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [1, 3], topk: 1}
    - {algorithm: EAGLE3, num_steps: 3, topk: 1, flags: {speculative-adaptive: [true]}}
  flags: {page-size: [null, 64]}
  env: {NCCL_P2P_DISABLE: [null, "1"], NCCL_P2P_LEVEL: [PIX, SYS]}
  conditions:
    - {when: {num_steps: 3}, then: {env: {NCCL_P2P_DISABLE: null}}}
    - {when: {flags: {speculative-adaptive: true}}, then: {flags: {page-size: null}}}
workload: {prompts: {chat: 1}, output_tokens: 64}
budget: {launches: 24}
"""
"""Study with flags of one sub-space, conditions, and variables that depend on each other."""


def _score(configuration: Configuration) -> float:
    """An arbitrary fixed score."""
    return 1.0 + int(configuration.key[:4], 16) / 65536


class PlannerConformance(abc.ABC):
    """The contract of `Planner` as tests."""

    @abc.abstractmethod
    def make(self, space: Space, launches: LaunchBuilder, seed: int) -> Planner:
        """Make a new planner."""

    def _new(
        self, seed: int = 0, *, hot_switch: bool = False, text: str = STUDY
    ) -> tuple[Space, Planner]:
        space = Space(parse_study(text, "conformance"))

        def can_switch(a: Configuration, b: Configuration) -> bool:
            return a == b or same_but_setting(a, b)

        return space, self.make(
            space, LaunchBuilder(space, can_switch, hot_switch=hot_switch), seed
        )

    def _play(self, planner: Planner, *, fail: int = 0) -> Iterator[LaunchPlan]:
        """Run a planner until it stops; every `fail`-th configuration is infeasible."""
        count = 0
        while not isinstance(plan := planner.propose(), Stop):
            yield plan
            for trial in plan.trials:
                count += 1
                infeasible = bool(fail) and count % fail == 0
                state = TrialState.INFEASIBLE if infeasible else TrialState.COMPLETE
                score = None if infeasible else _score(trial.configuration)
                planner.observe(Observation(trial.configuration, state, score))

    def test_visits_every_legal_point_once_and_stops(self) -> None:
        """The planner proposes no illegal point, repeats none, and stops."""
        for text, hot_switch in ((STUDY, False), (STUDY, True), (CONDITIONED, True)):
            space, planner = self._new(hot_switch=hot_switch, text=text)
            seen = [t.configuration for plan in self._play(planner) for t in plan.trials]
            assert sorted(c.key for c in seen) == sorted(c.key for c in space.points)

    def test_proposing_changes_nothing(self) -> None:
        """Two calls without an observation in between give the same proposal."""
        _, planner = self._new()
        assert planner.propose() == planner.propose()

    def test_equal_observations_and_seed_give_equal_proposals(self) -> None:
        """The proposals are also equal if all observations come at once, as in a resume."""
        _, first = self._new(seed=3)
        plans = list(self._play(first, fail=4))
        _, second = self._new(seed=3)
        assert list(self._play(second, fail=4)) == plans
        _, resumed = self._new(seed=3)
        half = len(plans) // 2
        count = 0
        for plan in plans[:half]:
            for trial in plan.trials:
                count += 1
                infeasible = count % 4 == 0
                state = TrialState.INFEASIBLE if infeasible else TrialState.COMPLETE
                score = None if infeasible else _score(trial.configuration)
                resumed.observe(Observation(trial.configuration, state, score))
        assert resumed.propose() == plans[half]

    def test_observed_baselines_are_not_proposed(self) -> None:
        """Measured baselines are not proposed, and a baseline outside the space is accepted."""
        space, planner = self._new()
        outside = Configuration.of(Speculation("EAGLE3", 9, 1, 10), draft_tp=1)
        assert outside not in space
        planner.observe(Observation(outside, TrialState.COMPLETE, 0.9))
        for point in space.points[:3]:
            planner.observe(Observation(point, TrialState.COMPLETE, 1.0))
        seen = {t.configuration.key for plan in self._play(planner) for t in plan.trials}
        assert not seen & {point.key for point in space.points[:3]}

    def test_inactive_points_are_not_proposed(self) -> None:
        """Inactive points have no score and can appear between launches."""
        space, planner = self._new()
        idle = [point for point in space.points if dict(point.env)["NCCL_PROTO"] == "LL128"]
        seen: list[Configuration] = []
        for plan in self._play(planner):
            seen += [trial.configuration for trial in plan.trials]
            if idle:
                for point in idle:
                    if point not in seen:
                        planner.observe(Observation(point, TrialState.INACTIVE, None))
                idle = []
        assert len(seen) == len(set(seen))
        assert {dict(point.env)["NCCL_PROTO"] for point in seen[1:]} == {None}
        assert len(seen) in {len(space) // 2, len(space) // 2 + 1}

    def test_a_space_without_a_feasible_point_still_ends(self) -> None:
        """The planner stops even if every configuration fails."""
        space, planner = self._new()
        plans = list(self._play(planner, fail=1))
        assert sum(len(plan.trials) for plan in plans) == len(space)
