"""The database of studies.

The database is the truth, and one process writes a study. Every method is one transaction that is
durable before the method returns (also at power loss: SQLite uses `synchronous=FULL`). After `kill
-9` each transaction is either complete or absent.

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
from results.launch_writer import LaunchWriter, TrialWriter
from results.migrations import require_head, upgrade
from results.queries import Questions
from results.study_writer import ForkWriter, StudyWriter
from results.tables import metadata
from results.upkeep import Upkeep

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import Engine


class Store(StudyWriter, ForkWriter, LaunchWriter, TrialWriter, Questions, Upkeep):
    """A database, owned by one thread. Other processes may read it or write other studies.

    Launches and trials are identified by study id and number, as in reports. If the database
    refuses a write, the method raises `StoreError` and stores nothing.

    Attributes:
        url: Full address with its password, for Optuna's storage.
        in_memory: Whether the database ends with this object.
    """

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        super().__init__(engine, read_only=read_only)
        self.in_memory = in_memory(engine.url)

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> Self:
        """Open a database and upgrade its tables.

        Args:
            address: `sqlite:///FILE` (relative to the working directory), `sqlite://` (in memory)
                or `postgresql://USER:PASSWORD@HOST/DATABASE`.
            create: Whether to create a missing SQLite file.
            read_only: Whether to read only. Needs no write permission and does not upgrade.

        Raises:
            StoreMissing: The database does not exist and `create` is false, or it is read-only and
                has no tables of the tuner.
            StoreOutdated: It is read-only and has an older version.
            StoreVersionError: A newer tuner wrote it.
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
        """Open a database for queries; upgrade an older version if permitted.

        Raises:
            StoreMissing: The database does not exist, or has no tables of the tuner.
            StoreOutdated: It has an older version and cannot be written.
            StoreVersionError: A newer tuner wrote it.
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
                # Needs no migration; a replay opens hundreds of databases in memory.
                metadata.create_all(self._writer)
            else:
                upgrade(self._writer)
        except DBAPIError as error:
            raise StoreError(f"cannot open the database {self.shown}: {error.orig}") from error

    def close(self) -> None:
        """Close the database. Idempotent."""
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
