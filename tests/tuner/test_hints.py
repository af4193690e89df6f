"""Commands in messages: copied, they do what the message says."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from results.records import Failure
from results.store import Store
from runners.base import RunnerError
from tuner.errors import copyable, remember
from tuner.loop.progress import Lines

from .cycles import replayed, timed

LONG = "There was no memory left" + " where much more of it would have been needed" * 6


@pytest.fixture
def given():
    yield remember
    remember(None)


def commands(text):
    return [shlex.split(found)[1:] for found in re.findall(r"`(tuner [^`]*)`", text)]


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("`tuner resume --study a` goes on", "`tuner resume --study a --storage {}` goes on"),
        ("`tuner show --study a --trial 1`; x", "`tuner show --study a --trial 1 --storage {}`; x"),
        ("`tuner db check` looks", "`tuner db check --storage {}` looks"),
        ("`tuner sweep --study a`, `tuner db list`",
         "`tuner sweep --study a --storage {}`, `tuner db list --storage {}`"),
        # Names of commands, commands on no database, commands that name one.
        *((text, text) for text in (
            "`tuner sweep` begins a study",
            "`tuner validate --study FILE`",
            "`tuner --debug ...` shows where",
            "`tuner resume --study a --storage sqlite:///other.db`",
            "tuner resume --study a",
        )),
    ],
)  # fmt: skip
def test_which_commands_get_the_database(given, message, printed):
    assert copyable(message) == message
    given("sqlite:///my.db")
    assert copyable(message) == printed.replace("{}", "sqlite:///my.db")
    assert copyable(copyable(message)) == copyable(message)


@pytest.mark.parametrize(
    ("address", "option"),
    [
        ("postgresql://me:secret@host:5/db", " --storage postgresql://me@host:5/db"),
        ("postgresql:///db?host=h&password=secret", " --storage 'postgresql:///db?host=h'"),
        ("postgresql://me@host/db", " --storage postgresql://me@host/db"),
        ("sqlite:///my files/it's.db", """ --storage 'sqlite:///my files/it'"'"'s.db'"""),
        ("no:address:secret", ""),
    ],
)
def test_passwords_are_left_out(given, address, option):
    given(address)
    assert copyable("`tuner show --study a`") == f"`tuner show --study a{option}`"


@pytest.fixture
def elsewhere(tuner, small):
    """A database of another name than the default: one study is at its end, one was interrupted."""

    def failing(configuration, measurement):
        if configuration.speculation.num_steps == 3:
            raise RunnerError(Failure("oom", "load", "configuration", LONG))
        return timed(configuration, measurement)

    address = f"sqlite:///{tuner.folder}/other.db"
    with Store.open(address) as store:
        replayed(small(protos="[null]"), store, failing, name="ended")
        half = replayed(small(protos="[null]"), store, timed, name="half").study
        reason = "by a signal; `tuner resume --study half` goes on"
        store.stop_study(half.id, "interrupted", reason)
        killed = replayed(small(protos="[null]"), store, timed, name="killed").study
        store.stop_study(killed.id, None, None)
    return address


def test_every_command_that_a_report_prints_works_when_copied(elsewhere, call):
    printed = [
        command
        for name in ("ended", "half", "killed")
        for command in commands(call("show", "--study", name, "--storage", elsewhere)[0])
    ]
    assert {(words[0], words[2]) for words in printed} == {
        ("show", "ended"),
        ("explain", "ended"),
        ("resume", "half"),
        ("explain", "half"),
        ("resume", "killed"),
        ("explain", "killed"),
    }
    for words in printed:
        if words[0] == "resume":
            assert words[-2:] == ["--storage", elsewhere]
        else:
            call(*words)


def test_what_comes_from_the_environment_is_not_repeated(elsewhere, call, monkeypatch):
    # Nor is what an earlier command line in this process was given.
    assert "--storage" in call("show", "--study", "half", "--storage", elsewhere)[0]
    assert copyable("`tuner show --study s`") == "`tuner show --study s`"
    monkeypatch.setenv("TUNER_STORAGE", elsewhere)
    out, _ = call("show", "--study", "half")
    assert "`tuner resume --study half` goes on" in out
    assert "--storage" not in out


def test_errors_and_checks_print_such_commands_too(elsewhere, call):
    option = f"--storage {elsewhere}"
    _, err = call("sweep", "--study", "kimi-demo", "--name", "half", "--storage", elsewhere, code=2)
    assert f"`tuner resume --study half {option}`" in err
    assert f"`tuner sweep --study kimi-demo --name NAME {option}`" in err
    _, err = call("resume", "--study", "ended", "--storage", elsewhere)
    assert f"`tuner resume --study ended --fork NEW --launches N {option}`" in err
    out, _ = call("doctor", "--storage", elsewhere)
    assert f"`tuner db check {option}`" in out


def test_a_sweep_prints_such_commands_while_it_runs(given, capsys):
    given("sqlite:///my.db")
    Lines(simulated=True).message("stopped: by a signal; `tuner resume --study a` goes on")
    assert "`tuner resume --study a --storage sqlite:///my.db` goes on" in capsys.readouterr().err


# Of `explain`


def test_where_the_time_goes_is_told_behind_the_answer(elsewhere, call):
    lines = call("show", "--study", "ended", "--storage", elsewhere)[0].rstrip().splitlines()
    assert lines[-1].startswith("where the time of a cycle goes: `tuner explain --study ended")
    assert any(line.startswith("verdict: ") for line in lines)


def test_explain_is_not_named_where_it_would_have_nothing_to_say(tuner, small, call):
    def plainly(configuration, measurement):
        clocked = timed(configuration, measurement)
        return replace(clocked, cycle=None) if configuration.speculation.enabled else clocked

    with Store.open(f"sqlite:///{tuner.folder}/tuner.db") as store:
        replayed(small(protos="[null]"), store, plainly, name="plain")
    assert "tuner explain" not in call("show")[0]
    call("explain", code=3)
