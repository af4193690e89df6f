"""A store on every database, and records to put into it.

Tests that take `store` or `address` are the store's conformance suite: another database joins by
another parameter. Those of what is on disk, and shared by processes, take `lasting_address`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from results.records import LaunchIntent, Measurement, Resolved
from results.store import Store
from results.studies import NewStudy, StoredStudy
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def sqlite_address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.db'}"


ADDRESSES = {"sqlite": "sqlite_address", "postgres": "postgres_address"}


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "sqlite://"
    return request.getfixturevalue(ADDRESSES[request.param])


@pytest.fixture(params=["sqlite", "postgres"])
def lasting_address(request: pytest.FixtureRequest) -> str:
    """A database that other processes can open too."""
    return request.getfixturevalue(ADDRESSES[request.param])


@pytest.fixture(params=["sqlite", "postgres"])
def new_address(request: pytest.FixtureRequest) -> str:
    """A database without any table."""
    fixtures = {**ADDRESSES, "postgres": "empty_postgres_address"}
    return request.getfixturevalue(fixtures[request.param])


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with Store.open(address) as store:
        yield store


@pytest.fixture
def study(store: Store, new_study: Callable[..., NewStudy]) -> StoredStudy:
    return store.create_study(new_study())


@pytest.fixture
def new_study() -> Callable[..., NewStudy]:
    def make(name: str = "kimi", **changes: Any) -> NewStudy:
        values: dict[str, Any] = {
            "text": "study: kimi\n",
            "digest": "d1",
            "space_digest": "s1",
            "runner": "simulated",
            "simulated": True,
        }
        return NewStudy(name, **{**values, **changes})

    return make


@pytest.fixture
def configuration() -> Callable[[int], Configuration]:
    def make(steps: int) -> Configuration:
        return Configuration.of(
            Speculation("EAGLE3", steps, 1, steps + 1), draft_tp=8, env={"NCCL_PROTO": None}
        )

    return make


@pytest.fixture
def intent(configuration: Callable[[int], Configuration]) -> Callable[[int], LaunchIntent]:
    marks = itertools.count()

    def make(steps: int) -> LaunchIntent:
        return LaunchIntent(configuration(steps), (), f"mark-{next(marks)}", "launch.log")

    return make


@pytest.fixture
def resolved(configuration: Callable[[int], Configuration]) -> Callable[[int], Resolved]:
    def make(steps: int) -> Resolved:
        return Resolved(
            configuration(steps), "0.5.23", simulated=True, time_scale=20.0, server_info={"a": [1]}
        )

    return make


@pytest.fixture
def measurement() -> Callable[..., Measurement]:
    def make(output_tok_s: float, concurrency: int = 1, **changes: Any) -> Measurement:
        values: dict[str, Any] = {
            "point": OperatingPoint(concurrency),
            "started_at": 1_800_000_000.25,
            "window_s": 10.0,
            "requests": 4,
            "failed_requests": 0,
            "output_tokens": 900,
            "output_tok_s": output_tok_s,
            "accept_length": 1.526,
            "ttft_p50_ms": 60.0,
            "ttft_p95_ms": 71.0,
            "tpot_p50_ms": 10.0,
            "tpot_p95_ms": 11.0,
            "e2e_p50_ms": 2000.0,
            "e2e_p95_ms": 2100.0,
            "prompt_tokens": 400,
            "cached_tokens": 0,
            "histogram": (10, 5, 1),
            "workload_fingerprint": "f",
            "simulated": True,
        }
        return Measurement(**{**values, **changes})

    return make
