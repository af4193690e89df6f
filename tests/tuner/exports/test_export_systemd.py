"""Exported systemd units: what systemd would start, with which variables."""

from __future__ import annotations

import ctypes
import functools
import glob
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings

from tuner.exports.exported import Secret
from tuner.exports.systemd_unit import quoted, write

from .exported_servers import (
    SECRETS,
    environments,
    exported,
    flag_sets,
    removed,
    resolved,
    texts,
    words_of,
)
from .systemd_reader import expanded, lines_of, without_specifiers
from .systemd_reader import words_of as split

pytestmark = pytest.mark.slow

SPLITTERS = sorted(glob.glob("/usr/lib/*/systemd/libsystemd-shared-*.so"))  # noqa: PTH207
ANALYZE = shutil.which("systemd-analyze")


@functools.cache
def systemd_splitter():
    """What splits a value into words as systemd's own code does; None where that is not to be had.

    A private library: another version of it may lack the function, or number its bits anew.
    """
    try:
        extract = ctypes.CDLL(SPLITTERS[-1]).extract_first_word
    except (IndexError, OSError, AttributeError):
        return None
    text = ctypes.POINTER(ctypes.c_char_p)
    extract.argtypes = [text, text, ctypes.c_char_p, ctypes.c_int]

    def words(data, flags):
        rest, word, out = ctypes.c_char_p(data), ctypes.c_char_p(), []
        while (got := extract(ctypes.byref(rest), ctypes.byref(word), None, flags)) > 0:
            out.append(word.value)
        return out if got == 0 else None

    # C's escapes are bit 1 of every version known; the bit that removes quotes has moved.
    for unquote in (8, 16, 32):
        if words(b'"a b" c\\x20d', 2 | unquote) == [b"a b", b"c d"]:
            return lambda value: [w.decode() for w in words(value.encode(), 2 | unquote)]
    return None


def read(text):
    """The command with its variables filled in, those it sets, and those it removes."""
    lines = lines_of(text)
    env: dict[str, str] = {}
    for section, key, value in lines:
        if key == "Environment":
            assert section == "Service"
            for word in split(value):
                name, _, set_to = without_specifiers(word).partition("=")
                env[name] = set_to
    [command] = [value for _, key, value in lines if key == "ExecStart"]
    argv = [expanded(without_specifiers(word), SECRETS) for word in split(command)]
    unset = {name for _, key, value in lines if key == "UnsetEnvironment" for name in split(value)}
    return argv, env, unset


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_systemd_starts_exactly_that(flags, env, unset):
    server = exported(flags, env, unset, secrets=True)
    argv, variables, gone = read(write(server))
    assert argv == ["/usr/bin/env", *resolved(words_of(server))]
    assert variables == env
    assert gone == unset


def test_an_interpreter_with_a_path_is_started_itself():
    assert read(write(exported(python="/opt/my venv/bin/python")))[0][0] == (
        "/opt/my venv/bin/python"
    )


def test_secrets_come_from_a_file_that_root_alone_reads():
    server = exported(secrets=True, env={"MY_TOKEN": Secret("OTHER")})
    text = write(server)
    files = [value for _, key, value in lines_of(text) if key == "EnvironmentFile"]
    assert files == ["/etc/sglang/sglang-some-study-1.env"]
    assert "--api-key ${SGLANG_API_KEY}" in text
    # A unit cannot give a variable another one's value: the file sets it under its own name.
    assert "must contain SGLANG_API_KEY=..., MY_TOKEN=..., HF_TOKEN=..." in text
    assert "EnvironmentFile" not in write(exported())


def test_it_says_that_it_is_simulated():
    assert "Description=SGLang, study some.Study_1, trial 3 (SIMULATED)" in write(exported())
    assert "SIMULATED" not in write(exported(simulated=False, remarks=()))


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed here")
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(flag_sets, environments, removed)
def test_systemd_takes_it(tmp_path_factory, flags, env, unset):
    folder = tmp_path_factory.mktemp("unit")
    # `verify` looks for the program of the first word, which must exist.
    server = exported(flags, env, unset, secrets=True)
    (folder / "s.service").write_text(write(server))
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", folder / "s.service"],
        capture_output=True,
        text=True,
        check=False,
        env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin"},
    )
    assert "s.service" not in done.stderr, done.stderr


@pytest.mark.skipif(systemd_splitter() is None, reason="no libsystemd-shared of a known kind here")
@settings(max_examples=100, deadline=None)
@given(texts, texts)
def test_our_reader_splits_as_systemd_does(first, second):
    value = " ".join(quoted(text, in_command=False) for text in (first, second))
    assert split(value) == systemd_splitter()(value)
    assert [without_specifiers(word) for word in split(value)] == [first, second]
