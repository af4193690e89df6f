"""The store: records in, questions answered.

The database is the truth, and one process writes a study. Every method is one transaction that is
durable (power loss included: SQLite runs with `synchronous=FULL`) before it returns; `kill -9` at
any instant leaves each of them either done or not done.

    with Store.open("sqlite:///tuner.db") as store:
        study = store.create_study(NewStudy(...))
        store.claim(study.id)
        launch = store.add_launch(study.id, intent, [(configuration, Purpose.SEARCH)])
        store.set_process(study.id, launch.id, process, argv)
        store.launch_ready(study.id, launch.id, ready_s, phases, "0.5.23")
        store.add_measurement(study.id, launch.trials[0], launch.id, measurement, Purpose.SEARCH)
        store.finish_trial(study.id, launch.trials[0], TrialState.COMPLETE, resolved)
        store.finish_launch(study.id, launch.id, LaunchState.COMPLETE, seconds)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sqlalchemy.exc import DBAPIError

from results.database import in_memory, open_engine, open_for_reading, resolve_url
from results.errors import StoreError, StoreOutdated
from results.fork_writer import ForkWriter
from results.launch_writer import LaunchWriter
from results.migrations import require_head, upgrade
from results.queries import Questions
from results.study_writer import StudyWriter
from results.tables import metadata
from results.trial_writer import TrialWriter
from results.upkeep import Upkeep

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import Engine


class Store(StudyWriter, ForkWriter, LaunchWriter, TrialWriter, Questions, Upkeep):
    """One database. Owned by one thread; other processes may read it, or write other studies.

    Launches and trials are named by study id and number, as users see them. Where the database
    does not take a write, the method raises `StoreError` and nothing of it is stored.

    Attributes:
        url: The full address, password included, for Optuna's storage.
        in_memory: Whether it is gone with this object.
    """

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        super().__init__(engine, read_only=read_only)
        self.in_memory = in_memory(engine.url)

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> Self:
        """Opens a database and brings its tables to this code's version.

        Args:
            address: `sqlite:///FILE` (relative to the working directory), `sqlite://` (in memory,
                thrown away) or `postgresql://USER:PASSWORD@HOST/DATABASE`.
            create: Whether an SQLite file that does not exist is made.
            read_only: To ask it, and not to write it: needs no permission to write the database,
                its file or its folder, and leaves it at its version.

        Raises:
            StoreMissing: It does not exist, and `create` is false; or holds nothing of the tuner,
                and was to be read only.
            StoreOutdated: It is of an older version, and was to be read only.
            StoreVersionError: It was written by a newer tuner.
            StoreError: It cannot be opened.
        """
        url = resolve_url(address)
        engine = open_for_reading(url) if read_only else open_engine(url, create=create)
        store = cls(engine, read_only=read_only)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_to_read(cls, address: str) -> Self:
        """Opens a database to ask it; one of an older version is upgraded where that may be.

        Raises:
            StoreMissing: It does not exist, or holds nothing of the tuner.
            StoreOutdated: It is of an older version, and may not be written by whoever runs this.
            StoreVersionError: It was written by a newer tuner.
            StoreError: It cannot be opened.
        """
        try:
            return cls.open(address, read_only=True)
        except StoreOutdated as outdated:
            try:
                cls.open(address, create=False).close()
            except StoreError as error:
                raise outdated from error
            return cls.open(address, read_only=True)

    def _prepare(self) -> None:
        try:
            if self.read_only:
                require_head(self._engine)
            elif self.in_memory:
                # Nothing to migrate, and a replay opens hundreds of these.
                metadata.create_all(self._writer)
            else:
                upgrade(self._writer)
        except DBAPIError as error:
            raise StoreError(f"cannot open the database {self.shown}: {error.orig}") from error

    def close(self) -> None:
        """Lets go of the database. Idempotent."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
