"""Optuna's TPE over the conditional space."""

from __future__ import annotations

import random
import warnings
import zlib
from typing import TYPE_CHECKING

import optuna

from results.records import Purpose, TrialState
from tuner.planners.base import LaunchPlan, Observation, PlannedTrial, Planner, Stop

if TYPE_CHECKING:
    from collections.abc import Collection

    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.parameters import Parameter
    from search_spaces.space.space import Space
    from tuner.planners.launches import LaunchBuilder

ASKS = 64
"""Samples drawn before falling back to an unseen point at random: TPE repeats itself on small
discrete spaces by design, and illegal points are drawn and thrown away."""


class TPEPlanner(Planner):
    """Optuna's multivariate, grouped TPE; random until `startup` launches' worth is known.

    Settings that share a launch differ in one knob: eight of them are one server, not a start.

    Optuna's study is this planner's own, in memory, rebuilt from observations: the study's
    persistent Optuna tables are a mirror, written by the store.

    Infeasible trials are told as completed with the worst value seen and a violated constraint,
    since TPE never sees FAIL (Optuna 5.0.0, `TPESampler._get_states`).
    """

    def __init__(
        self, space: Space, launches: LaunchBuilder, *, seed: int, startup: int = 8
    ) -> None:
        self._space = space
        self._launches = launches
        self._seed = seed
        self._startup = startup
        self._observations: list[Observation] = []
        self._seen: set[str] = set()
        self._unseen = dict.fromkeys(space)

    def observe(self, observation: Observation) -> None:
        self._observations.append(observation)
        self._seen.add(observation.configuration.key)
        self._unseen.pop(observation.configuration, None)

    def launches_left(self) -> int | None:
        return None

    def unjudged(self) -> Collection[Configuration]:
        return self._unseen

    def propose(self) -> LaunchPlan | Stop:
        if not self._unseen:
            return Stop("exhausted")
        pick = self._sample() or random.Random(  # noqa: S311 - not a secret
            f"{self._seed}/{len(self._seen)}"
        ).choice(tuple(self._unseen))
        return self._launches.plan(PlannedTrial(pick, Purpose.SEARCH), self._seen)

    def _sample(self) -> Configuration | None:
        study = self._study()
        for _ in range(ASKS):
            trial = study.ask()
            configuration = self._space.sample(lambda parameter, t=trial: _suggest(t, parameter))  # type: ignore[misc]
            # Not RUNNING: a constant liar would hold duplicates and illegal draws against
            # their neighbourhood.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            if configuration.key not in self._seen and configuration in self._space:
                return configuration
        return None

    def _study(self) -> optuna.Study:
        told = [
            o
            for o in self._observations
            # A baseline that is no point has no parameters.
            if o.state in {TrialState.COMPLETE, TrialState.INFEASIBLE}
            and o.configuration in self._space
        ]
        known = self._launches.launches_left(o.configuration for o in told)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                multivariate=True,
                group=True,
                n_startup_trials=0 if known >= self._startup else len(told) + 1,
                seed=zlib.crc32(f"{self._seed}/{len(self._observations)}".encode()),
            )
        with _quiet():
            study = optuna.create_study(direction="maximize", sampler=sampler)
        scores = [o.score for o in self._observations if o.score is not None]
        worst = min(scores, default=0.0)
        for observation in told:
            infeasible = observation.state is TrialState.INFEASIBLE
            parameters = self._space.parameters_of(observation.configuration)
            values = self._space.assignments(observation.configuration)
            study.add_trial(
                optuna.create_trial(
                    value=worst if infeasible else observation.score,
                    params={p.name: values[p.name] for p in parameters},
                    distributions={p.name: _distribution(p) for p in parameters},
                    constraints={"feasible": 1.0 if infeasible else -1.0},
                )
            )
        return study


def _is_ladder(parameter: Parameter) -> bool:
    """Whether the choices are consecutive integers, so that distance between them means something.

    Powers of two and other gaps stay categorical: Optuna's integers know only a constant step.
    """
    choices = parameter.choices
    return (
        parameter.ordered
        and len(choices) > 1
        and all(type(choice) is int for choice in choices)
        and list(choices) == list(range(choices[0], choices[-1] + 1))  # type: ignore[arg-type, operator]
    )


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    if _is_ladder(parameter):
        low, high = parameter.choices[0], parameter.choices[-1]
        return optuna.distributions.IntDistribution(int(low), int(high))  # type: ignore[arg-type]
    return optuna.distributions.CategoricalDistribution(parameter.choices)


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Value:
    if _is_ladder(parameter):
        return trial.suggest_int(parameter.name, parameter.choices[0], parameter.choices[-1])  # type: ignore[arg-type]
    return trial.suggest_categorical(parameter.name, parameter.choices)


class _quiet:  # noqa: N801 - used as a with statement's word
    """Optuna announces every study it creates; restores its verbosity on leaving."""

    def __enter__(self) -> None:
        self._before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def __exit__(self, *_: object) -> None:
        optuna.logging.set_verbosity(self._before)
