"""`tuner export` over stored studies: what it says, against what it compares, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from results.store import Store
from runners.sglang.command import sglang_command
from search_spaces.configuration import Configuration
from search_spaces.launch_commands import read_launch_text
from search_spaces.study_file.load import parse_study
from tuner.cli import app as cli
from tuner.exports import FORMATS, format_of
from tuner.exports.assemble import assemble
from tuner.replay import replay

from ..conftest import small_text
from ..replays import Odd, chains, play, table

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
KEY, TOKEN = "sk-live-0123456789", "hf_0123456789abcdefghij"
SERVER = f"""\
    host: 10.0.0.5
    port: 8000
    api-key: {KEY}
  env: {{HF_TOKEN: {TOKEN}, TEAM_SECRET: $TEAM_SECRET}}
"""
TODAY = """\
production:
  command: >-
    NCCL_PROTO=Simple OMP_NUM_THREADS=8 python -m sglang.launch_server
    --model-path moonshotai/Kimi-K2.5 --tp-size 8 --max-running-requests 64
    --speculative-algorithm EAGLE3 --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
    --host 10.0.0.5 --port 8000 --api-key $SGLANG_API_KEY
"""


class Replayed(Odd):
    """A replay that is stored as a simulated study, as the command line can open it."""

    name = "simulated"
    simulated = True

    def __init__(self, study, bend=lambda configuration, measurement: measurement):
        super().__init__(study, bend)


def text_with_today():
    flags = "  flags: {tp-size: 8, max-running-requests: 64}\n"
    text = small_text(steps="[2, 3]")
    assert flags in text
    server = "  flags:\n    tp-size: 8\n    max-running-requests: 64\n" + SERVER
    return text.replace(flags, server) + TODAY


@pytest.fixture
def today():
    # As one that was stored before such keys were refused.
    return parse_study(text_with_today(), "today.yaml", stored=True)


def exported_of(study, report, trial=None, **options):
    chosen = trial or report.leaderboard.best
    command = sglang_command(study, chosen.configuration, python="python")
    return assemble(report, study, chosen, command, **options)


def test_warnings_go_with_the_command(small, store):
    study = small(steps="[1]", protos="[null]")

    def bend(configuration, measurement):
        return replace(measurement, warnings=("degenerate_output: all answers\nare '!!!!'\x1b[0m",))

    report = play(study, store, Odd(study, bend))
    for name in FORMATS:
        text = format_of(name).write(exported_of(study, report))
        assert "degenerate_output: all answers are '!!!!'" in text, name
        assert "\x1b" not in text, name
    script = format_of("shell").write(exported_of(study, report))
    assert "# WARNING: degenerate_output" in script


def test_a_figure_of_a_switched_server_says_so_and_one_of_its_own_launch_does_not(small, store):
    study = small()
    report = replay(study, table(study), store, name="s", can_switch=chains)
    for trial in report.leaderboard.trials:
        judged = next(x for x in report.launches if x.id == trial.judged_in)
        head = format_of("shell").write(exported_of(study, report, trial)).splitlines()
        told = json.loads(format_of("json").write(exported_of(study, report, trial)))
        found = [line for line in head if "whose server was switched between" in line]
        if settings := len(judged.intent.settings):
            [line] = found
            assert (
                f"launch {judged.id}, whose server was switched between {settings} settings" in line
            )
            assert told["switched"] == {"launch": judged.id, "settings": settings}
        else:
            assert not found
            assert told["switched"] is None
    # The first switched launch has the anchor, too.
    assert {len(x.intent.settings) for x in report.launches} == {0, 3, 4}


def test_what_must_be_known_before_it_serves_is_in_every_format(small, store):
    study = small(steps="[1]", protos="[null, LL128]")
    report = play(study, store, Replayed(study))
    forced = next(
        t
        for t in report.leaderboard.trials
        if dict(t.configuration.env)["NCCL_PROTO"] and t.configuration.speculation.enabled
    )
    for name in FORMATS:
        text = format_of(name).write(exported_of(study, report, forced))
        assert "NCCL_PROTO=LL128 forces LL128 on" in text, name
    script = format_of("shell").write(exported_of(study, report, forced))
    assert "# WARNING: NCCL_PROTO=LL128 forces LL128 on" in script
    [warning] = json.loads(format_of("json").write(exported_of(study, report, forced)))["warnings"]
    assert warning.startswith("NCCL_PROTO=LL128 forces LL128 on")
    assert report.cautions == (warning,) or report.leaderboard.best != forced


def test_a_limit_that_only_the_study_has_is_told(store):
    text = text_with_today().replace(" --max-running-requests 64", "")
    study = parse_study(text, "today.yaml", stored=True)
    report = play(study, store, Replayed(study))
    for name in FORMATS:
        told = format_of(name).write(exported_of(study, report))
        assert "--max-running-requests 64 is set" in told, name
        assert "Raise it if you serve more requests" in told, name


def test_every_format_tells_the_whole_story_and_no_secret(today, store):
    report = play(today, store, Replayed(today))
    server = exported_of(today, report)
    for name in FORMATS:
        text = format_of(name).write(server)
        assert KEY not in text, name
        assert TOKEN not in text, name
        assert "SGLANG_API_KEY" in text, name
        assert "TEAM_SECRET" in text, name
        assert "not on a GPU" in text or name == "json", name
        assert "Verdict: unconfirmed" in text or '"unconfirmed"' in text, name
        assert "SGLang" in text or "sglang" in text, name
        assert "OMP_NUM_THREADS: 8 -> not set" in text, name
        assert (
            "Changes against baseline 'production'" in text or '"baseline": "production"' in text
        ), name


def test_no_secret_of_a_launch_is_stored(today, store, monkeypatch):
    monkeypatch.setenv("TEAM_SECRET", "of the team")

    class Keyed(Replayed):
        """Says what a runner starts: a trial's server, with its secrets filled in."""

        def command(self, configuration):
            return sglang_command(today, configuration, python="python", host="127.0.0.1")

    started = Keyed(today).command(Configuration())
    assert dict(started.env)["TEAM_SECRET"] == "of the team", "or nothing would be shown"
    report = play(today, store, Keyed(today))
    assert report.launches
    for launch in report.launches:
        variables = dict(launch.environment)
        assert variables["HF_TOKEN"] == "$HF_TOKEN"
        assert variables["TEAM_SECRET"] == "$TEAM_SECRET"
        assert KEY not in launch.command


def test_the_winner_is_compared_with_todays_command(today, store):
    report = play(today, store, Replayed(today))
    found = exported_of(today, report).contributions
    assert found.baseline == "production"
    assert {change.knob.name for change in found.changes} == {
        "NCCL_PROTO",
        "OMP_NUM_THREADS",
        "draft steps",
    }
    assert exported_of(today, report, against="none").contributions.baseline == "none"
    # Today's own command changes nothing against itself, and is written as it runs.
    trial = report.leaderboard.baselines["production"]
    server = exported_of(today, report, trial)
    assert server.contributions.changes == ()
    assert ("OMP_NUM_THREADS", "8") in server.env
    assert dict(server.flags)["speculative-num-steps"] == 3


def test_containers_take_the_versions_image_or_the_one_that_is_named(today, store):
    report = play(today, store, Replayed(today))
    version = report.study.sglang_version
    assert exported_of(today, report).image == f"lmsysorg/sglang:v{version}"
    named = exported_of(today, report, image="mine:1")
    for name in ("compose", "k8s"):
        text = format_of(name).write(named)
        assert 'image: "mine:1"' in text
        assert '"0.0.0.0"' in text
        assert "in the study on 10.0.0.5" in text
    assert named.start_s >= 600


def test_a_trial_that_cannot_be_relied_on_says_so(small, store):
    study = small(steps="[1]", protos="[null]")

    def bend(configuration, measurement):
        if not configuration.speculation.enabled:
            return measurement
        return replace(measurement, invalid=("short: the window\nwas cut",))

    report = play(study, store, Odd(study, bend))
    trial = next(t for t in report.leaderboard.trials if t.configuration.speculation.enabled)
    server = exported_of(study, report, trial)
    for name in set(FORMATS) - {"json"}:
        assert "DO NOT USE IN PRODUCTION: the trial is invalid" in format_of(name).write(server), (
            name
        )
    document = json.loads(format_of("json").write(server))
    assert document["state"] == "invalid"
    assert document["verdict"] is None
    assert "Do not use this in production" in document["notes"][0]


def test_what_the_server_made_of_it_is_told(small, store):
    study = small(steps="[1]", protos="[null]")
    report = play(study, store, Odd(study, lambda configuration, measurement: measurement))
    best = report.leaderboard.best
    assert "The server said" not in "\n".join(exported_of(study, report).remarks)
    ran = Configuration.of(best.configuration.speculation, flags={"page-size": 64})
    changed = replace(best, resolved=ran)
    told = exported_of(study, report, changed).remarks
    assert any(
        r.startswith("Configuration that the server reported: ") and "page-size" in r for r in told
    )


def test_a_prefix_that_pins_is_in_the_command_and_one_that_leaves_is_a_note(store):
    def with_prefix(words):
        text = text_with_today().replace("server:\n", f"server:\n  prefix: {words}\n", 1)
        return parse_study(text, "today.yaml", stored=True)

    study = with_prefix('[numactl, -N, "0", env, NCCL_PROTO=Tree, "A=a b"]')
    report = play(study, store, Replayed(study))
    server = exported_of(study, report)
    assert "NCCL_PROTO" in dict(server.env), "the winner sets it itself"
    pinned = ("numactl", "-N", "0", "env", "A=a b")
    assert server.start == (*pinned, "python", "-m", "sglang.launch_server")
    script = format_of("shell").write(server)
    assert "\n  numactl -N 0 env 'A=a b' python -m sglang.launch_server " in script
    unit = format_of("systemd").write(server)
    assert 'ExecStart=/usr/bin/env numactl -N 0 env "A=a b" python -m' in unit
    document = json.loads(format_of("json").write(server))
    assert document["prefix"] == list(pinned)
    assert document["argv"][:3] == ["python", "-m", "sglang.launch_server"]
    assert " numactl -N 0 env 'A=a b' python -m sglang.launch_server " in document["command"]
    read = read_launch_text(document["command"])
    assert (read.prefix, read.env["A"]) == (("numactl", "-N", "0"), "a b")
    assert "numactl -N 0 env 'A=a b' python -m" in format_of("sglang-config").write(server)
    for name in ("compose", "k8s"):
        text = format_of(name).write(server)
        assert "Measured with the prefix `numactl -N 0 env A=a b`, which is not exported" in text
        assert text.count("numactl") == 1
    assert "started behind" not in script + unit
    away = with_prefix("[docker, exec, sglang]")
    for name in FORMATS:
        text = format_of(name).write(exported_of(away, report))
        assert text.count("docker exec") == 1, name
        assert "started with the prefix `docker exec sglang`" in text, name


@pytest.fixture
def stored(tuner):
    """The study of today's command, in the database that the command line opens."""
    study = parse_study(text_with_today(), "today.yaml", stored=True)
    with Store.open(f"sqlite:///{tuner.folder}/tuner.db") as store:
        play(study, store, Replayed(study), name="small")
    return tuner


def test_the_command_line_exports_every_format(stored):
    schema = json.loads((SCHEMAS / "export.schema.json").read_text())
    document = json.loads(stored.run("export", "--json").stdout)
    jsonschema.validate(document, schema)
    assert document["against"]["baseline"] == "production"
    assert document["command"].count('"$SGLANG_API_KEY"') == 1
    written = stored.run("export", "--format", "compose", "--image", "a/b:c", "--output", "c.yaml")
    assert "wrote c.yaml" in written.stderr
    service = yaml.safe_load((stored.folder / "c.yaml").read_text())["services"]["sglang"]
    assert service["image"] == "a/b:c"
    assert not (stored.folder / "c.yaml").stat().st_mode & 0o111
    shown = stored.run("show").stdout
    assert "baseline production" in shown
    assert KEY not in shown


@pytest.fixture
def export(tuner, monkeypatch, capsys):
    """`tuner export` in this process, in the folder of the database: stdout and stderr."""
    monkeypatch.chdir(tuner.folder)
    monkeypatch.delenv("TUNER_STORAGE", raising=False)

    def run(*arguments, code=0):
        assert cli.run(["export", *arguments]) == code
        return capsys.readouterr()

    return run


def test_the_command_line_shows_the_difference(stored, export):
    table = export("--diff").out
    assert "Changes against baseline 'production'" in table
    assert "every figure simulated" in table
    assert "NCCL_PROTO" in table
    assert "All together: +" in table
    data = json.loads(export("--diff", "--json", "--against", "none").out)
    assert data["against"]["baseline"] == "none"
    marks = {"study", "trial", "simulated", "simulated_acceptance"}
    assert marks | {"against", "speculation", "changes"} == set(data)


def test_a_file_that_is_there_is_overwritten_only_when_asked(stored, export):
    launch = stored.folder / "launch.sh"
    launch.write_text("today's\n")
    refused = export("--output", "launch.sh", code=2).err
    assert "launch.sh exists already; --force overwrites it" in refused
    assert launch.read_text() == "today's\n"
    export("--output", "launch.sh", "--force")
    assert launch.read_text().startswith("#!/bin/sh")
    assert "remove --output" in export("--diff", "--force", code=2).err


def test_a_limit_that_today_has_too_needs_no_word(stored, export):
    assert "is pinned" not in export().out


def test_what_the_command_line_refuses(stored, export):
    refused = export("--output", "no/such/folder/x.sh", code=2).err
    assert "cannot write no/such/folder/x.sh: No such file or directory" in refused
    assert "no trial 99" in export("--trial", "99", code=2).err
    export("--format", "toml", code=2)
    refused = export("--format", "json", "--image", "a/b:c", code=2).err
    assert "--image applies only to compose and k8s" in refused
    assert "prints to stdout" in export("--diff", "--output", "x", code=2).err


def test_nothing_feasible_and_no_such_baseline(tuner, small, export):
    study = small(steps="[1]", protos="[null]")

    class Broken(Replayed):
        def measured(self, configuration, point):
            return replace(super().measured(configuration, point), invalid=("x: not believed",))

    with Store.open(f"sqlite:///{tuner.folder}/tuner.db") as store:
        play(study, store, Broken(study), name="small")
    for extra in (("--diff",), ("--format", "k8s")):
        assert "no feasible configuration" in export(*extra, code=3).err
    refused = export("--trial", "0", "--against", "production", code=2).err
    assert "no measured baseline 'production'; measured are 'default', 'none'" in refused
