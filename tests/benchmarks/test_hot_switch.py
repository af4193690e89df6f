"""The same study with hot switching and without, beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import hot_switch
from benchmarks.hot_switch import pairs, spent, tables
from results.store import Store
from tests.tuner.conftest import small, store  # noqa: F401 - fixtures
from tests.tuner.hot_switch.test_hot_switch import Switchable, clocked
from tests.tuner.replays import play
from tuner.studies import assembly


def test_both_ways_beside_each_other(small, store):  # noqa: F811 - fixtures
    study = small(steps="{from: 1, to: 5}")
    found = {}
    for way in ("switched", "alone"):
        runner = Switchable(study, clocked)
        options = {"planner": "exhaustive", "hot_switch": way == "switched", "name": way}
        found[way] = play(study, store, runner, **options)
    ways = [spent(store, report, way) for way, report in found.items()]
    assert [(w.launches, w.trials, w.windows) for w in ways] == [(5, 12, 13), (12, 12, 12)]
    assert ways[0].best == ways[1].best == "EAGLE3 steps 2, NCCL_PROTO=LL,LL128,Simple"
    assert ways[0].clock_s < 0.6 * ways[1].clock_s
    rows = pairs(found["alone"], found["switched"])
    assert len(rows) == 12
    assert sum(r.was_switched for r in rows) == 9
    assert {r.difference for r in rows} == {0.0}
    assert rows[1].cycle_alone_ms == rows[1].cycle_switched_ms
    text = tables(ways, rows)
    assert "| launches | 5 | 12 |" in text
    assert "launches 0.42" in text
    assert "simulated tok/s" in text
    assert "9 switched: tok/s apart by 0.0 % in the median, 0.0 % at most." in text
    assert "given up" not in text


def test_a_way_that_gave_up_is_told(small, store):  # noqa: F811 - fixtures
    study = small(steps="{from: 1, to: 3}", protos="[null]")

    def bend(configuration, measurement, intent):
        return clocked(configuration, measurement, intent, switched_verify=9.0)

    report = play(study, store, Switchable(study, bend), hot_switch=True)
    way = spent(store, report, "switched")
    assert way.launches == 5
    text = tables([way], [])
    assert "| given up | the switched server of launch" in text


def test_a_way_that_failed_takes_nothing_from_the_other(small, store, tmp_path, monkeypatch):  # noqa: F811 - fixtures
    study = small()
    runner = Switchable(study, clocked)
    problem = assembly.build_problem(study, runner, hot_switch=True)
    options = {"seed": 0, "planner": "auto", "hot_switch": True, "launches": None, "hours": None}
    store.create_study(assembly.describe_new(problem, runner, name="s", **options))
    report = assembly.make_report(store, "s", study, runner)
    nothing = spent(store, report, "switched")
    assert (nothing.launches, nothing.real_s, nothing.windows) == (0, 0.0, 0)
    assert "| launches | 0 | 0 |" in tables([nothing, replace(nothing, way="alone")], [])

    began = []

    def fails(args, _study, way):
        began.append(way)
        return 5 if way == "switched" else 0

    monkeypatch.setattr(hot_switch, "run", fails)
    storage = f"sqlite:///{tmp_path / 'both.db'}"
    Store.open(storage).close()
    monkeypatch.setattr("sys.argv", ["hot_switch", "--storage", storage])
    with pytest.raises(SystemExit) as ended:
        hot_switch.main()
    assert (began, ended.value.code) == (["switched", "alone"], 5)
