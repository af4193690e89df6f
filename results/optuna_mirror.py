"""Mirror of a study in Optuna's tables, for optuna-dashboard and samplers.

The tuner's tables are written first and are the truth. `OptunaMirror.sync` updates Optuna's tables
and closes gaps left by a kill. Trial n is Optuna's trial n.

States (Optuna 5.0; samplers ignore FAIL trials, so a configuration that cannot run is a completed
trial with a finite worst value and a violated constraint):

| tuner                          | Optuna                                |
|--------------------------------|---------------------------------------|
| running                        | RUNNING                               |
| complete                       | COMPLETE with its value               |
| infeasible                     | COMPLETE, worst value, constraint 1.0 |
| invalid, failed, inactive      | FAIL                                  |
"""

from __future__ import annotations

import math
import random
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from results.database import BUSY_TIMEOUT_S, resolve_url
from results.errors import MirrorConflict, StoreError
from results.records import TrialState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage, RDBStorage
    from optuna.trial import FrozenTrial

    Choice = bool | int | float | str | None
    from collections.abc import Iterator


CONSTRAINT: Final = "tuner_infeasible"
"""Name of the constraint of an infeasible trial; its value is 1.0, violated."""

STATE_ATTRIBUTE: Final = "tuner_state"
"""User attribute with our word for a finished trial's state."""

_MARK: Final = "tuner_study"


@dataclass(frozen=True, slots=True)
class MirrorTrial:
    """A trial for Optuna.

    Attributes:
        number: Its number in both.
        state: Its state.
        parameters: Parameters that apply. If one has a value outside its choices, Optuna gets none:
            the trial is outside the space.
        value: Value to maximize; required in state `complete`.
        worst: Finite value no better than any real value; required in state `infeasible`.
        user_attrs: Further JSON values to show.
    """

    number: int
    state: TrialState
    parameters: tuple[MirrorParameter, ...] = ()
    value: float | None = None
    worst: float | None = None
    user_attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """Changes of a `sync`.

    Attributes:
        added: Numbers of trials that Optuna lacked.
        told: Numbers of trials that were running in Optuna and are finished now.
        differing: Numbers of trials that are finished in Optuna with another state or value. Optuna
            does not allow changes of finished trials. Values of infeasible trials are not compared,
            because the worst value changes during a study.
    """

    added: tuple[int, ...] = ()
    told: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()


class OptunaMirror:
    """Optuna's copy of one study, owned by the process and thread that own the study.

    Attributes:
        study: The Optuna study, for reading and for samplers. Only this class may add trials.
    """

    def __init__(self, storage: str | BaseStorage, study_name: str) -> None:
        """Open the Optuna study of this name, or create it (direction: maximize).

        Args:
            storage: `Store.url`, or a storage of Optuna (in memory, for replays).
            study_name: Name of the study.

        Raises:
            MirrorConflict: Optuna has a study of this name that the tuner did not create.
            StoreError: Optuna cannot use its tables.
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
            # Without trials, a kill prevented setting the mark.
            if self.study.get_trials(deepcopy=False):
                raise MirrorConflict(
                    f"Optuna's tables have a study {study_name!r} that tuner did not create; "
                    "choose another --name or another --storage"
                )
            self.study.set_user_attr(_MARK, study_name)

    def close(self) -> None:
        """Close the database if it was opened by address. Idempotent."""
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
        """Update Optuna's trials. Idempotent; each trial is complete or absent.

        Args:
            trials: Trials by number, including all that Optuna lacks.

        Raises:
            MirrorConflict: Optuna lacks a trial before the first given one, or has other
                parameters. Optuna then has the trials before it.
            StoreError: Optuna's storage failed; a later `sync` repeats the write.
            ValueError: A finished trial has no finite value.
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
        # Write the state last, because a finished trial cannot be changed.
        for name, value in target.user_attrs.items():
            if existing.user_attrs.get(name) != value:
                trial.set_user_attr(name, value)
        for name, value in target.constraints.items():
            if name not in existing.constraints:
                trial.set_constraint(name, value)
        self.study.tell(existing.number, target.values, state=target.state)


def _target(trial: MirrorTrial) -> FrozenTrial:
    """The trial as Optuna should store it."""
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


@dataclass(frozen=True, slots=True)
class MirrorParameter:
    """One parameter of a trial.

    Attributes:
        name: Its name, equal in every trial of the study.
        choices: All values of the study in a fixed order; Optuna requires equal choices in all
            trials.
        value: Value of the trial.
        ordered: Whether the choices are ordered numbers. Evenly spaced integers become an
            `IntDistribution`, others a categorical one.
    """

    name: str
    choices: tuple[Choice, ...]
    value: Choice
    ordered: bool = False

    @property
    def in_space(self) -> bool:
        """Whether the value is one of the choices (a baseline's may not be)."""
        return any(_same(self.value, choice) for choice in self.choices)


def distribution(parameter: MirrorParameter) -> BaseDistribution:
    """Return the Optuna distribution, equal for equal choices.

    Raises:
        ValueError: Optuna cannot distinguish two of the choices (`True` and `1`).
    """
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        IntDistribution,
    )

    choices = parameter.choices
    if len(set(choices)) != len(choices):
        raise ValueError(f"{parameter.name}: two choices of {choices} are equal to Optuna")
    if parameter.ordered and all(type(choice) is int for choice in choices):
        low, *others = sorted(int(choice) for choice in choices if choice is not None)
        step = others[0] - low if others else 1
        if [low, *others] == list(range(low, low + step * len(choices), step)):
            return IntDistribution(low, low + step * (len(choices) - 1), step=step)
    return CategoricalDistribution(choices)


def _same(a: Choice, b: Choice) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


_CREATIONS: Final = 6
_CREATION_PAUSE_S: Final = 0.3


def rdb_storage(address: str) -> RDBStorage:
    """Open Optuna's tables, and create them if necessary.

    Raises:
        SQLAlchemyError: The tables cannot be used; `optuna_at_work` translates this error.
    """
    from optuna.storages import RDBStorage  # noqa: PLC0415

    url = resolve_url(address)
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_S}
    # Optuna formats the address with {SCHEMA_VERSION}, so other braces are doubled.
    text = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    for attempt in range(_CREATIONS):
        try:
            return RDBStorage(text, engine_kwargs=options)
        except SQLAlchemyError:
            # Optuna creates its tables without a lock, so one of two simultaneous first sweeps
            # may find only some of them (5.0.0).
            if attempt == _CREATIONS - 1:
                raise
            time.sleep(_CREATION_PAUSE_S * (1 + random.random()))  # noqa: S311 - to part the two
    raise AssertionError("unreachable")


def close_storage(storage: RDBStorage) -> None:
    """Close the database."""
    storage.remove_session()
    storage.engine.dispose()


@contextmanager
def optuna_at_work() -> Iterator[None]:
    """Silence Optuna's log lines and warnings in the block, and translate its errors.

    Raises:
        StoreError: Optuna's storage failed, or has a version that this Optuna does not support.
    """
    import optuna  # noqa: PLC0415

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, RuntimeError) as error:
        raise StoreError(f"Optuna's tables cannot be used: {_cause(error)}") from error
    finally:
        optuna.logging.set_verbosity(verbosity)


def _cause(error: BaseException) -> str:
    """The database's own message, without the generic advice that Optuna adds."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    said = next((c.orig for c in causes if isinstance(c, DBAPIError) and c.orig), None)
    return str(said or error)
