"""Mirror a study to Optuna's tables, so that optuna-dashboard shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.errors import StoreError
from results.records import Trial, TrialState
from tuner.formatting import describe, fixed_names
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.optuna_mirror import MirrorTrial, OptunaMirror
    from search_spaces.space.space import Space
    from tuner.verdict.scores import Leaderboard


class Mirror:
    """Writes the leaderboard to Optuna's tables. Trial numbers are the same in both.

    The mirror is only for the dashboard. If Optuna's tables cannot be written, `warn` gets one
    message, the mirror is not updated any more, and the sweep continues.
    """

    def __init__(self, mirror: OptunaMirror, space: Space, warn: Callable[[str], None]) -> None:
        self._mirror = mirror
        self._space = space
        self._warn = warn
        self._broken = False
        self._shown: tuple[MirrorTrial, ...] = ()

    def show(self, leaderboard: Leaderboard) -> None:
        """Write `leaderboard` to Optuna's tables."""
        scores = [s for t in leaderboard.trials if (s := leaderboard.score(t)) is not None]
        worst = min(scores, default=0.0)
        trials = tuple(self._translate(t, leaderboard, worst) for t in leaderboard.trials)
        if self._broken or trials == self._shown:
            return
        try:
            self._mirror.sync(trials)
        except (StoreError, ValueError) as error:  # ValueError: Optuna rejects a trial
            self._broken = True
            self._warn(f"Optuna's tables are no longer updated: {error}")
        self._shown = trials

    def _translate(self, trial: Trial, leaderboard: Leaderboard, worst: float) -> MirrorTrial:
        from results.optuna_mirror import (  # noqa: PLC0415 - slow to import
            MirrorParameter,
            MirrorTrial,
        )

        state = trial.state
        if comparable(trial) and leaderboard.reference is None:
            state = TrialState.RUNNING  # its score is unknown until the baselines are judged
        # Optuna has no parameters for a baseline outside the space.
        parameters: tuple[MirrorParameter, ...] = ()
        if trial.configuration in self._space:
            values = self._space.assignments(trial.configuration)
            parameters = tuple(
                MirrorParameter(p.name, p.choices, values[p.name], ordered=p.ordered)
                for p in self._space.parameters_of(trial.configuration)
            )
        first = trial.measurements[0] if trial.measurements else None
        attributes = {
            "configuration": describe(trial.configuration, fixed_names(self._space.study)),
            "purpose": str(trial.purpose),
            "output_tok_s": first.output_tok_s if first is not None else None,
            "accept_length": first.accept_length if first is not None else None,
            "simulated": first.simulated if first is not None else None,
            "failure": trial.failure.message if trial.failure is not None else None,
        }
        return MirrorTrial(
            number=trial.number,
            state=state,
            parameters=parameters,
            value=leaderboard.score(trial),
            worst=worst,
            user_attrs={k: v for k, v in attributes.items() if v is not None},
        )
