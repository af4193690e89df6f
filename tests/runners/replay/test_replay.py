"""The replay runner: table rows on a virtual clock."""

from __future__ import annotations

import time

import pytest

from results.records import Failure
from runners.base import RunnerError
from runners.conformance import HotSwitchConformance, Launcher
from runners.replay.runner import ReplayRunner
from runners.replay.table import ReplayEntry, ReplayRow, read_replay_table, table_of
from search_spaces.configuration import Configuration, Setting
from search_spaces.workload import OperatingPoint

from ..conftest import eagle3

PLAIN = Configuration.of(
    flags={"attention-backend": None, "enable-mixed-chunk": None}, env={"NCCL_PROTO": None}
)
FAILING = eagle3(5, NCCL_PROTO="LL128")
ONE, TWO = OperatingPoint(1), OperatingPoint(2)


def chains(a: Configuration, b: Configuration) -> bool:
    return a.env == b.env and a.speculation.topk == b.speculation.topk == 1


@pytest.fixture
def table():
    def entry(*speeds: float, accept: float | None) -> ReplayEntry:
        rows = tuple(ReplayRow(speed, accept) for speed in speeds)
        return ReplayEntry(60.0, {1: rows, 2: rows})

    return table_of(
        [
            (PLAIN, entry(90.0, 91.0, accept=None)),
            (eagle3(1), entry(85.0, accept=1.3)),
            (eagle3(2), entry(87.0, accept=1.5)),
            (
                FAILING,
                ReplayEntry(
                    30.0, {}, Failure("cuda_oom", "cuda_graph", "configuration", "too much")
                ),
            ),
        ]
    )


class TestConformance(HotSwitchConformance):
    @pytest.fixture
    def runner(self, table, study):
        return ReplayRunner(table, study, can_switch=chains)

    @pytest.fixture
    def configurations(self):
        return (eagle3(1), eagle3(2), PLAIN)

    @pytest.fixture
    def points(self):
        return (ONE, TWO)

    @pytest.fixture
    def failing(self):
        return FAILING


def test_launches_and_windows_advance_the_virtual_clock(table, study, tmp_path):
    runner = ReplayRunner(table, study, can_switch=chains)
    began = time.monotonic()
    assert runner.now() == 0.0
    with Launcher(runner, tmp_path).start(eagle3(1), (Setting(1), Setting(2))) as session:
        assert runner.now() == 60.0
        measurement = session.measure(ONE)
        assert measurement.window_s == pytest.approx(4 * 32 / 85.0)
        assert runner.now() == pytest.approx(60.0 + measurement.window_s)
        session.apply(Setting(2))
        assert session.measure(ONE).output_tok_s == 87.0
        session.apply(Setting(5))
        with pytest.raises(RunnerError) as caught:
            session.measure(ONE)
        assert caught.value.failure.kind == "not_in_table"
    with pytest.raises(RunnerError) as caught:
        Launcher(runner, tmp_path).start(FAILING)
    assert caught.value.failure.kind == "cuda_oom"
    assert runner.now() > 90.0
    assert time.monotonic() - began < 60.0


def test_repeats_are_used_in_order(table, study, tmp_path):
    runner = ReplayRunner(table, study)
    speeds = []
    for _ in range(3):
        with Launcher(runner, tmp_path).start(PLAIN) as session:
            speeds.append(session.measure(ONE).output_tok_s)
    assert speeds == [90.0, 91.0, 90.0]


def test_noise_is_seeded(table, study, tmp_path):
    def speeds(seed: int) -> list[float]:
        runner = ReplayRunner(table, study, seed=seed, noise=0.01)
        with Launcher(runner, tmp_path).start(PLAIN) as session:
            return [session.measure(ONE).output_tok_s for _ in range(5)]

    assert speeds(1) == speeds(1) != speeds(2)
    assert all(80 < speed < 100 for speed in speeds(1))


def test_missing_row_is_a_study_fault(table, study, tmp_path):
    runner = ReplayRunner(table, study)
    with pytest.raises(RunnerError) as caught:
        Launcher(runner, tmp_path).start(eagle3(2, topk=2, tokens=4))
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("not_in_table", "study")
    with (
        Launcher(runner, tmp_path).start(PLAIN) as session,
        pytest.raises(RunnerError, match="concurrency 64"),
    ):
        session.measure(OperatingPoint(64))


HEAD = "configuration,concurrency,repeat,output_tok_s,accept_length,launch_s,failure,fault\n"


def test_read_table(tmp_path, study):
    path = tmp_path / "table.csv"
    path.write_text(
        HEAD
        + f"{PLAIN.key},1,1,91.0,,60,,\n"
        + f"{PLAIN.key},1,0,90.0,,60,,\n"
        + f"{eagle3(2).key},1,0,87.0,1.53,61,,\n"
        + f"{FAILING.key},,,,,33,port_taken,host\n"
    )
    table = read_replay_table(path)
    assert table.entries[PLAIN.key] == ReplayEntry(60.0, {1: (ReplayRow(90.0), ReplayRow(91.0))})
    assert table.entries[eagle3(2).key].rows[1] == (ReplayRow(87.0, 1.53),)
    failed = table.entries[FAILING.key]
    assert failed.launch_s == 33.0
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.fault) == ("port_taken", "host")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("configuration,concurrency\n", "lacks the columns repeat"),
        (HEAD + "k,1,0,fast,,60,,\n", "line 2"),
        (HEAD + "k,1,0,0,,60,,\n", "output_tok_s 0.0 is not a number above 0"),
        (HEAD + "k,1,0,inf,,60,,\n", "output_tok_s inf"),
        (HEAD + "k,1,0,90,nan,60,,\n", "accept_length nan"),
        (HEAD + "k,1,0,90,,-60,,\n", "launch_s -60.0"),
        (HEAD + "k,,,,,60,oom,nobody\n", "nobody"),
        (HEAD + "k,1\n", "line 2"),
    ],
)
def test_invalid_table_is_refused(tmp_path, text, said):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_replay_table(path)


def test_invalid_window_is_skipped_if_others_are_valid(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        HEAD
        + "a,1,0,99,,40,unsteady,\na,1,1,100,,40,,\na,8,0,200,,40,,\n"
        + "b,1,0,100,,40,,\nb,8,0,200,,40,unsteady,\n"
    )
    table = read_replay_table(path)
    mended, unknown = table.entries["a"], table.entries["b"]
    assert mended.failure is None
    assert [row.output_tok_s for row in mended.rows[1]] == [100]
    assert unknown.failure is not None
    assert unknown.failure.kind == "unsteady"
