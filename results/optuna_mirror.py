"""A study mirrored into Optuna's own tables, so that optuna-dashboard and samplers work on it.

Our tables are the truth and are written first; `OptunaMirror.sync` brings Optuna's up to them, and
closes any gap that a kill between the two left. Trial n is Optuna's trial n.

How states are told (Optuna 5.0; its samplers never see a FAIL trial, so a configuration that
cannot run is a completed trial with a finite worst value and a violated constraint):

| ours                           | Optuna's                              |
|--------------------------------|---------------------------------------|
| running                        | RUNNING                               |
| complete                       | COMPLETE with its value               |
| infeasible                     | COMPLETE, worst value, constraint 1.0 |
| invalid, failed, inactive      | FAIL                                  |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from results.errors import MirrorConflict
from results.optuna_parameters import MirrorParameter, distribution
from results.optuna_storage import close_storage, optuna_at_work, rdb_storage
from results.records import TrialState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from optuna import Study
    from optuna.storages import BaseStorage, RDBStorage
    from optuna.trial import FrozenTrial

__all__ = [
    "CONSTRAINT",
    "STATE_ATTRIBUTE",
    "MirrorParameter",
    "MirrorTrial",
    "OptunaMirror",
    "SyncReport",
]

CONSTRAINT: Final = "tuner_infeasible"
"""Name of the constraint of an infeasible trial; its value is 1.0, violated."""

STATE_ATTRIBUTE: Final = "tuner_state"
"""User attribute with our word for a finished trial's state."""

_MARK: Final = "tuner_study"


@dataclass(frozen=True, slots=True)
class MirrorTrial:
    """A trial as Optuna is to see it.

    Attributes:
        number: Its number, ours and Optuna's.
        state: Our state.
        parameters: Those that apply to it. If the value of one is not among its choices, Optuna
            is told none of them: the trial is a point outside the space.
        value: What is maximized; needed where the state is `complete`.
        worst: A finite value no better than any real one; needed where it is `infeasible`.
        user_attrs: Shown beside it (JSON values).
    """

    number: int
    state: TrialState
    parameters: tuple[MirrorParameter, ...] = ()
    value: float | None = None
    worst: float | None = None
    user_attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a `sync` changed.

    Attributes:
        added: Numbers of trials that Optuna did not have.
        told: Numbers of trials that were running there and are finished now.
        differing: Numbers of trials that ended there with another state or value. Optuna lets
            nobody change a finished trial, and a view is no reason to stop a study. The value of
            an infeasible trial does not count: the worst moves as the study goes on.
    """

    added: tuple[int, ...] = ()
    told: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()


class OptunaMirror:
    """Optuna's view of one study. Owned by the process, and thread, that owns the study.

    Attributes:
        study: The Optuna study; for reading, and for samplers to learn from. Nothing but this
            class may add trials to it.
    """

    def __init__(self, storage: str | BaseStorage, study_name: str) -> None:
        """Opens the Optuna study of that name, or creates it (direction: maximize).

        Args:
            storage: `Store.url`, or a storage of Optuna's (in memory, for replays).
            study_name: Name of the study.

        Raises:
            MirrorConflict: Optuna has a study of that name which is not the tuner's.
            StoreError: Optuna cannot use its tables there.
        """
        self._own: RDBStorage | None = None
        with optuna_at_work():
            if isinstance(storage, str):
                storage = self._own = rdb_storage(storage)
            try:
                self._open_study(storage, study_name)
            except BaseException:
                self.close()
                raise

    def _open_study(self, storage: BaseStorage, study_name: str) -> None:
        import optuna  # noqa: PLC0415

        self.study: Study = optuna.create_study(
            storage=storage, study_name=study_name, direction="maximize", load_if_exists=True
        )
        if self.study.user_attrs.get(_MARK) != study_name:
            # Without trials it is one that a kill cut off before the mark was set.
            if self.study.get_trials(deepcopy=False):
                raise MirrorConflict(
                    f"Optuna's tables have a study {study_name!r} that tuner did not create; "
                    "choose another --name or another --storage"
                )
            self.study.set_user_attr(_MARK, study_name)

    def close(self) -> None:
        """Lets go of the database, where it was opened by address. Idempotent."""
        if self._own is not None:
            close_storage(self._own)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def sync(self, trials: Sequence[MirrorTrial]) -> SyncReport:
        """Brings Optuna's trials to ours. Idempotent; each trial is complete or absent.

        Args:
            trials: By number. Optuna's missing ones must all be among them.

        Raises:
            MirrorConflict: Optuna's trials are not these: one is missing below the first that was
                given, or has other parameters. Optuna then knows the trials before it.
            StoreError: Optuna's storage did not take a write; a later `sync` catches up.
            ValueError: A finished trial lacks its value, or has one that is not finite.
        """
        with optuna_at_work():
            known = {t.number: t for t in self.study.get_trials(deepcopy=False)}
            added: list[int] = []
            told: list[int] = []
            differing: list[int] = []
            for trial in sorted(trials, key=lambda t: t.number):
                target = _target(trial)
                existing = known.get(trial.number)
                if existing is None:
                    self._add(trial, target, len(known) + len(added))
                    added.append(trial.number)
                elif existing.params != target.params:
                    raise MirrorConflict(
                        f"Optuna's trial {trial.number} of study {self.study.study_name!r} has "
                        f"other parameters ({existing.params}, expected {target.params}): another "
                        "program wrote to this study"
                    )
                elif existing.state.is_finished():
                    if _end_of(existing) != _end_of(target):
                        differing.append(trial.number)
                elif target.state.is_finished():
                    self._tell(existing, target)
                    told.append(trial.number)
        return SyncReport(tuple(added), tuple(told), tuple(differing))

    def _add(self, trial: MirrorTrial, target: FrozenTrial, following: int) -> None:
        if trial.number != following:
            raise MirrorConflict(
                f"Optuna's next trial would be {following}, not {trial.number}: sync all trials"
            )
        self.study.add_trial(target)

    def _tell(self, existing: FrozenTrial, target: FrozenTrial) -> None:
        from optuna.trial import Trial  # noqa: PLC0415

        trial = Trial(self.study, existing._trial_id)  # noqa: SLF001 - Optuna has no public way
        # Everything else first: once told, a trial can't be changed.
        for name, value in target.user_attrs.items():
            if existing.user_attrs.get(name) != value:
                trial.set_user_attr(name, value)
        for name, value in target.constraints.items():
            if name not in existing.constraints:
                trial.set_constraint(name, value)
        self.study.tell(existing.number, target.values, state=target.state)


def _target(trial: MirrorTrial) -> FrozenTrial:
    """The trial as Optuna is to hold it."""
    from optuna.trial import TrialState as OptunaState  # noqa: PLC0415
    from optuna.trial import create_trial  # noqa: PLC0415

    value: float | None = None
    constraints: dict[str, float] = {}
    attributes = dict(trial.user_attrs)
    if trial.state is TrialState.RUNNING:
        state = OptunaState.RUNNING
    elif trial.state is TrialState.COMPLETE:
        state, value = OptunaState.COMPLETE, _finite(trial, trial.value)
    elif trial.state is TrialState.INFEASIBLE:
        state, value = OptunaState.COMPLETE, _finite(trial, trial.worst)
        constraints[CONSTRAINT] = 1.0
    else:
        state = OptunaState.FAIL
    if state.is_finished():
        attributes[STATE_ATTRIBUTE] = trial.state.value
    inside = all(parameter.in_space for parameter in trial.parameters)
    parameters = trial.parameters if inside else ()
    return create_trial(
        state=state,
        value=value,
        params={parameter.name: parameter.value for parameter in parameters},
        distributions={parameter.name: distribution(parameter) for parameter in parameters},
        user_attrs=attributes,
        constraints=constraints,
    )


def _end_of(trial: FrozenTrial) -> object:
    return trial.state, trial.constraints or trial.values


def _finite(trial: MirrorTrial, value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise ValueError(f"trial {trial.number} is {trial.state}, but its value is {value}")
    return float(value)
