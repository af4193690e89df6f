"""Planner with Optuna's TPE sampler. Optuna takes 0.3 s to import, so functions import it."""

from __future__ import annotations

import contextlib
import random
import warnings
import zlib
from typing import TYPE_CHECKING

from results.records import Purpose, TrialState
from tuner.planners.base import LaunchPlan, Observation, PlannedTrial, Planner, Stop
from tuner.planners.registry import register

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import optuna

    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.parameters import Parameter
    from search_spaces.space.space import Space
    from tuner.planners.launches import LaunchBuilder

ASKS = 64
"""Maximum number of samples per proposal, before the planner proposes a random new point. TPE
repeats itself on small discrete spaces by design, and illegal samples are discarded."""


@register("tpe", "Optuna's TPE sampler", auto="some")
class TPEPlanner(Planner):
    """Samples with Optuna's multivariate, grouped TPE; at random for the first `startup` launches.

    The start counts launches, not settings: settings that share a launch differ in one knob only.

    This planner builds an Optuna study in memory from its observations. The store writes the
    persistent Optuna tables; this planner does not read them.

    Infeasible trials count as complete with the worst score and a violated constraint, because
    TPE ignores FAIL (Optuna 5.0.0, `TPESampler._get_states`).
    """

    def __init__(
        self, space: Space, launches: LaunchBuilder, *, seed: int, startup: int = 8
    ) -> None:
        self._space = space
        self._launches = launches
        self._seed = seed
        self._startup = startup
        self._observations: list[Observation] = []
        self._observed_keys: set[str] = set()
        self._remaining = dict.fromkeys(space)

    def observe(self, observation: Observation) -> None:
        self._observations.append(observation)
        self._observed_keys.add(observation.configuration.key)
        self._remaining.pop(observation.configuration, None)

    def launches_left(self) -> int | None:
        return None

    def unjudged(self) -> Collection[Configuration]:
        return self._remaining

    def propose(self) -> LaunchPlan | Stop:
        if not self._remaining:
            return Stop()
        pick = self._sample() or random.Random(  # noqa: S311 - not a secret
            f"{self._seed}/{len(self._observed_keys)}"
        ).choice(tuple(self._remaining))
        return self._launches.plan(PlannedTrial(pick, Purpose.SEARCH), self._observed_keys)

    def _sample(self) -> Configuration | None:
        import optuna  # noqa: PLC0415

        study = self._study()
        for _ in range(ASKS):
            trial = study.ask()
            configuration = self._space.sample(lambda parameter, t=trial: _suggest(t, parameter))  # type: ignore[misc]
            # A RUNNING trial would make TPE avoid the region of a duplicate or illegal sample.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            if configuration.key not in self._observed_keys and configuration in self._space:
                return configuration
        return None

    def _study(self) -> optuna.Study:
        import optuna  # noqa: PLC0415

        known = [
            o
            for o in self._observations
            # A baseline outside the space has no parameters.
            if o.state in {TrialState.COMPLETE, TrialState.INFEASIBLE}
            and o.configuration in self._space
        ]
        launches = self._launches.launches_left(o.configuration for o in known)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                multivariate=True,
                group=True,
                n_startup_trials=0 if launches >= self._startup else len(known) + 1,
                seed=zlib.crc32(f"{self._seed}/{len(self._observations)}".encode()),
            )
        with _quiet():
            study = optuna.create_study(direction="maximize", sampler=sampler)
        scores = [o.score for o in self._observations if o.score is not None]
        worst = min(scores, default=0.0)
        for observation in known:
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
    """Whether the choices are consecutive integers.

    Powers of two and lists with gaps stay categorical: Optuna's integers need a constant step.
    """
    choices = parameter.choices
    return (
        parameter.ordered
        and len(choices) > 1
        and all(type(choice) is int for choice in choices)
        and list(choices) == list(range(choices[0], choices[-1] + 1))  # type: ignore[arg-type, operator]
    )


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    import optuna  # noqa: PLC0415

    if _is_ladder(parameter):
        low, high = parameter.choices[0], parameter.choices[-1]
        return optuna.distributions.IntDistribution(int(low), int(high))  # type: ignore[arg-type]
    return optuna.distributions.CategoricalDistribution(parameter.choices)


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Value:
    if _is_ladder(parameter):
        return trial.suggest_int(parameter.name, parameter.choices[0], parameter.choices[-1])  # type: ignore[arg-type]
    return trial.suggest_categorical(parameter.name, parameter.choices)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide Optuna's message about each new study."""
    import optuna  # noqa: PLC0415

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)
