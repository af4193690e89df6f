"""The noise benchmark on simulated servers whose noise is known: all of it is found again."""

from __future__ import annotations

import csv
import json
import signal
import time

import pytest

from runners.replay.table import read_replay_table

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_planted_in_launches_is_found_in_launches(noise):
    noise.plant(launch=0.2, block=0.0, prompt=0.0)
    arguments = ("--configuration", "none", "--launches", "3", "--blocks", "3", "--json")
    report = json.loads(noise.run(*arguments)[0])
    assert report["simulated"] is True
    assert report["provenance"] == "simulated"
    (point,) = report["points"]
    assert (point["launches"], point["blocks"], point["prompts"]) == (3, 3, 6)
    for of in (point["of_windows"]["output_tok_s"], point["of_requests"]["output_tok_s"]):
        launch = of["launch"]
        assert launch["low"] < 0.2 < launch["high"]
        # A busy machine adds noise of its own to blocks and requests; far less than this.
        others = [name for name in of if name != "launch"]
        assert all(of[name]["value"] < launch["value"] / 2 for name in others), of


def test_what_is_planted_in_prompts_and_blocks_and_pairing_by_prompt(noise, marked, capsys):
    noise.plant(launch=0.0, block=0.1, prompt=0.2)
    arguments = ("--configuration", "none", "EAGLE3:2", "--launches", "2", "--blocks", "4")
    # The first sitting is ended in the middle of its first launch ...
    process = noise.start(*arguments)
    blocks = noise.folder / "out" / "n.csv"
    deadline = time.monotonic() + 120
    while not blocks.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert not marked()
    # ... nothing is mixed without being asked for, nor with another load ...
    assert noise.here(*arguments) == 2
    assert "--resume" in capsys.readouterr().err
    assert noise.here(*arguments, "--resume", "--requests", "4") == 2
    assert "another load" in capsys.readouterr().err
    # ... the second has no time for a launch ...
    assert noise.here(*arguments, "--resume", "--minutes", "1e-9") == 0
    assert "launches left" in capsys.readouterr().err
    # ... and the third ends it: what was cut short is made again.
    report = json.loads(noise.run(*arguments, "--resume", "--json")[0])
    assert len(report["points"]) == 2
    for point in report["points"]:
        assert (point["launches"], point["blocks"], point["prompts"]) == (2, 4, 6)
        of = point["of_requests"]["output_tok_s"]
        # 6 prompts and 6 degrees of freedom of blocks: within a factor of 3 all but surely.
        assert 0.07 < of["prompt"]["value"] < 0.5
        assert 0.03 < of["block"]["value"] < 0.25
        assert 0.03 < point["of_windows"]["output_tok_s"]["block"]["value"] < 0.25
        assert of["residual"]["value"] < of["prompt"]["value"] / 2
        window = point["one_window"]
        assert window["other_prompts"] > window["same_prompts"]["value"]
    (pair,) = report["pairs"]
    assert pair["removed"] > 0.8  # the simulation's prompts are slow in every configuration
    apart = pair["told_apart"]
    assert apart["these"]["3"] <= apart["same"]["3"] < apart["other"]["3"]
    assert apart["these"]["5"] < apart["these"]["3"] < apart["these"]["2"]

    table = read_replay_table(blocks)  # the strategy benchmark reads it as it is
    assert {len(entry.rows[1]) for entry in table.entries.values()} >= {8}
    written = rows(blocks)
    assert {row["provenance"] for row in written} == {"simulated"}
    assert {row["condition"] for row in written} == {"quiet"}
    requests = rows(noise.folder / "out" / "n-requests.csv")
    assert len(requests) >= 6 * len(written)
    # Launch by launch, the configurations take turns.
    order = list(dict.fromkeys((r["launch"], r["algorithm"]) for r in written))
    assert [name for _, name in order][-4:] in (
        ["none", "EAGLE3", "EAGLE3", "none"],
        ["EAGLE3", "none", "none", "EAGLE3"],
    )
    assert noise.here("--report") == 0
    assert "provenance  simulated" in capsys.readouterr().out


def test_disturbances_take_turns_with_quiet_blocks_and_leave_nothing(noise, marked):
    noise.plant(launch=0.0, block=0.0, prompt=0.0)
    kinds = ("idle_server", "imports", "busy_core", "pinned_client", "unstreamed")
    out, _ = noise.run(
        *("--configuration", "EAGLE3:2", "--launches", "0", "--drift-minutes", "0.03"),
        *("--cycles", "2", "--disturb", *kinds, "--json"),
    )
    assert not marked()
    assert not (noise.folder / "out" / "n.csv").exists()  # none of it is quiet
    written = rows(noise.folder / "out" / "n-aside.csv")
    drift = [row for row in written if row["condition"] == "drift"]
    assert drift
    disturbed = [row["condition"] for row in written if row["launch"] == "1"]
    cycle = ["quiet", *kinds, "quiet"]
    assert disturbed == [*cycle, *cycle[::-1]]
    report = json.loads(out)
    assert report["points"] == []
    # Four blocks have a slope.
    assert [each["blocks"] for each in report["drifts"]] == [len(drift)][: len(drift) > 3]
    found = {each["beside"]: each for each in report["disturbances"]}
    assert set(found) == set(kinds)
    assert all(each["cycles"] == 2 for each in found.values())
    whole = [row for row in written if row["condition"] == "unstreamed"]
    quiet = [row for row in disturbed if row == "quiet"]
    assert len(whole) == 2 < len(quiet)
    # The same load, and all of its tokens.
    assert len({(row["fingerprint"], row["output_tokens"]) for row in written}) == 1
    assert found["unstreamed"]["cycle_ms"] is None  # no stream, no cycles
    assert abs(found["unstreamed"]["output_tok_s"]["value"]) < 0.5


def test_launch_after_launch_that_fails_ends_the_sitting(noise):
    noise.plant(misbehave=[{"kind": "exit", "phase": "cuda_graph", "cause": "cuda_oom"}])
    out, err = noise.run("--configuration", "none", "--json", code=4)
    assert "launch 1 failed" in err
    assert "launch 2" not in err
    failed = rows(noise.folder / "out" / "n-aside.csv")
    assert [(row["launch"], row["failure"], row["state"]) for row in failed] == [
        ("0", "cuda_oom", "failed"),
        ("1", "cuda_oom", "failed"),
    ]
    assert json.loads(out)["points"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--configuration", "EAGLE9"), "write one of none, default"),
        (("--configuration", "EAGLE3:2,4,99"), "EAGLE3:2,4,99"),
        (("--study", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_launch(noise, arguments, words, capsys):
    noise.plant()
    assert noise.here(*arguments) == 2
    assert words in capsys.readouterr().err
    assert not (noise.folder / "out").exists()
