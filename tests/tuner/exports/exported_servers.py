"""Servers to export: any flags and variables, without a study behind them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import strategies as st

from runners.base import LaunchCommand
from runners.sglang.command import flag_words
from tuner.analysis.contributions import Contributions
from tuner.exports.exported import Exported, Secret

TOOLS = Path(sys.executable).parent
"""Where the checkers are installed: in the environment that runs the tests."""

ODD = (
    "",
    " ",
    "a b",
    "$HOME",
    "$$",
    "${X:-y}",
    "$(id)",
    "`id`",
    "$((1))",
    "%n",
    "%%",
    "100%",
    "a'b",
    'a"b',
    "\\",
    "\\n",
    "a\\",
    "a\nb",
    "\n",
    "\ttab\r",
    "#x",
    "a #b",
    "a: b",
    ";",
    "!x",
    "~",
    "*",
    "&a",
    "- a",
    "yes",
    "null",
    "1e3",
    "0o7",
    "1:30",
    "0.85",
    "12",
    '{"a": {"b": [1, "x y"]}}',
    "LL,LL128,Simple",
    "é😀",
    "\x1b[0m",
    "\x7f\x85\u00a0\u2028\ufeff",
    "--x",
    "@x",
    "${{ x }}",
)
texts = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
    st.text(st.sampled_from("$%\\'\"{}()` \n;#:a"), max_size=12),
)
values = st.one_of(
    texts,
    st.integers(-9, 99),
    st.floats(-9, 9, allow_nan=False),
    st.just(True),
    st.lists(texts, min_size=1, max_size=3).map(tuple),
)
flag_names = st.from_regex(r"x-[a-z]{1,6}", fullmatch=True)
variable_names = st.from_regex(r"T_[A-Z0-9]{1,6}", fullmatch=True)
flag_sets = st.dictionaries(flag_names, values, max_size=4)
environments = st.dictionaries(variable_names, texts, max_size=4)
removed = st.sets(st.from_regex(r"U_[A-Z]{1,4}", fullmatch=True), max_size=2)


def exported(flags=None, env=None, unset=(), *, python="python3", secrets=False, **changes):
    """A server to export; with `secrets`, a key and a token that come from variables."""
    given = {"model-path": "m/m", **(flags or {})}
    variables = dict(env or {})
    if secrets:
        given["api-key"] = Secret("SGLANG_API_KEY")
        variables["HF_TOKEN"] = Secret("HF_TOKEN")
    given |= {"host": "127.0.0.1", "port": 30000} | changes.pop("address", {})
    shown = {n: f"${v.name}" if isinstance(v, Secret) else v for n, v in given.items()}
    argv = [python, "-m", "sglang.launch_server"]
    for name, value in shown.items():
        argv += flag_words(name, value)
    shown_env = {n: f"${v.name}" if isinstance(v, Secret) else v for n, v in variables.items()}
    fields = {
        "study": "some.Study_1",
        "trial": 3,
        "simulated": True,
        "python": python,
        "module": "sglang.launch_server",
        "flags": tuple(given.items()),
        "env": tuple(variables.items()),
        "unset": tuple(sorted(unset)),
        "command": LaunchCommand(tuple(argv), tuple(shown_env.items()), tuple(sorted(unset))),
        "remarks": ("Study some.Study_1, trial 3: no speculation", "SIMULATED: so it is"),
        "changes": ("Same configuration as baseline 'none' (trial 0).",),
        "contributions": Contributions(3),
        "notes": (),
        "facts": {"sglang_version": "0.5.23", "machine": None},
        "image": "lmsysorg/sglang:v0.5.23",
        "gpus": 8,
        "start_s": 600,
        "start_reason": "no start was measured",
    }
    return Exported(**{**fields, **changes})


def words_of(server, *, host=None):
    """What a reader must get back: the words from the interpreter on, secrets as `Secret`s."""
    return [*server.start, *(word for line in server.flag_lines(host=host) for word in line)]


def resolved(words):
    """The same with the secrets filled in, as `SECRETS` has them."""
    return [SECRETS[w.name] if isinstance(w, Secret) else w for w in words]


SECRETS = {"SGLANG_API_KEY": "k $1 'x'", "HF_TOKEN": 'hf "1"'}
"""What the variables of secrets hold in these tests."""


def caller_environment(**more):
    """A small environment to start readers in."""
    return {"PATH": os.environ["PATH"], "HOME": "/nowhere", **more}
