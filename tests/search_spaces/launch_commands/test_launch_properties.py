"""What must hold of every launch command, and of every other text."""

from __future__ import annotations

import shlex

from hypothesis import example, given, settings
from hypothesis import strategies as st

from search_spaces.flags.flags import canonical_flag
from search_spaces.flags.options import Option, options
from search_spaces.launch_commands import UnreadableCommandError, read_launch_text
from search_spaces.secrets import is_secret

from ...examples import examples

KINDS = (None, "shell", "dockerfile", "compose", "kubernetes", "systemd")
ENTRY = "python3 -m sglang.launch_server"

# No letters that spell a secret's name.
TEXTS = st.text("abcXYZ09 _-./:{}\"'$`\\,;&|<>()[]*?!#~=%@+é", min_size=1, max_size=12)
OPTIONS = sorted(
    {o.name: o for o in options().values() if o.name != "config" and not is_secret(o.name)}.items()
)


def values_of(option: Option) -> st.SearchStrategy[str]:
    if option.choices:
        return st.sampled_from(option.choices)
    if option.type == "int":
        return st.integers(0, 10**6).map(str)
    if option.type == "float":
        return st.floats(0.001, 1000).map(lambda x: str(round(x, 3)))
    return TEXTS.filter(lambda text: not text.startswith("-"))


@st.composite
def flags(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Flags by one of their spellings, each with its words."""
    chosen = draw(st.lists(st.sampled_from(OPTIONS), unique_by=lambda item: item[0], max_size=8))
    out = {}
    for _, option in chosen:
        spelling = draw(st.sampled_from(option.spellings))
        most = {0: 0, 1: 1, "?": 1}.get(option.takes, 3)
        words = draw(st.lists(values_of(option), min_size=min(most, 1), max_size=most))
        out[spelling] = tuple(words)
    return out


def quotings(word: str) -> st.SearchStrategy[str]:
    double = '"' + "".join(f"\\{c}" if c in '\\"$`' else c for c in word) + '"'
    # A backslash and a blank at the end of a line are taken for a continued line.
    escaped = double if " " in word else "".join(c if c.isalnum() else f"\\{c}" for c in word)
    return st.sampled_from([shlex.quote(word), double, escaped])


SPACES = st.sampled_from(
    [" ", "   ", " \\\n  ", " \\  \n", " \\\n  # a comment between\n ", " \\ # and after\n", "\t"]
)


@st.composite
def spelled(draw: st.DrawFn, given_flags: dict[str, tuple[str, ...]]) -> str:
    """One way to type the flags."""
    out = ENTRY
    for name, words in given_flags.items():
        typed = [draw(quotings(word)) for word in words]
        if len(words) == 1 and draw(st.booleans()):
            out += f"{draw(SPACES)}--{name}={typed[0]}"
            continue
        out += draw(SPACES) + " ".join([f"--{name}", *typed])
    return out


def as_words(flags_read: dict[str, object]) -> dict[str, tuple[str, ...]]:
    out = {}
    for name, value in flags_read.items():
        items = value if isinstance(value, tuple) else (value,)
        out[name] = () if value is True else tuple(str(item) for item in items)
    return out


@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_however_it_is_typed_the_flags_are_the_same(data):
    wanted = data.draw(flags())
    text = data.draw(spelled(wanted))
    read = read_launch_text(text, kind="shell")
    assert as_words(read.flags) == {canonical_flag(name): words for name, words in wanted.items()}
    assert (read.variables, read.secrets, read.env, read.prefix) == ((), (), {}, ())
    assert read_launch_text(read.text, kind="shell").flags == read.flags


PIECES = st.sampled_from(
    [
        ENTRY, "sglang serve", "python -m sglang.launch_server", "docker run -e A=1 -it image",
        "docker exec c", "kubectl exec pod --", "ssh host", "bash -c", "srun -n1", "env", "-u B",
        "--model-path", "--tp", "8", "--api-key", "--flag", "--trust-remote-code", "$A", "${B:-c}",
        "${D:-${E:-f}}", "$(date)", "`date`", "$((1 + 2))", "'", '"', "\\", "\n", " ", "#", ";",
        "&&", "|", ">", "2>&1", "<<EOF", "EOF", "(", ")", "{", "}", "$", "A=1", "export A=b c=d",
        "ARGS=(--tp 8)", '"${ARGS[@]}"', "services:", "  x:", "    command: ", "FROM a", "CMD ",
        '["a"]', "ENTRYPOINT ", "ENV A=", "apiVersion: v1", "kind: Pod", "containers:", "- ",
        "ExecStart=", "```", "$ ", "> ", "\u2013tp", "\u201ca\u201d", "\u00a0", "\ue000", "~/x",
        "HF_TOKEN=abc", "unset A", "set -a", "\0", "[", "4711 ",
    ]
)  # fmt: skip
SOME_PIECES = st.lists(PIECES, max_size=10).map(" ".join)
ANY_TEXT = st.one_of(
    st.text(max_size=80),
    SOME_PIECES,
    st.tuples(SOME_PIECES, st.just(ENTRY), SOME_PIECES).map(" ".join),
)


@given(ANY_TEXT, st.sampled_from(KINDS))
@example("x: &a [*a]\napiVersion: v1\nkind: Pod", "kubernetes")
@example("services:\n  a: {command: 5, environment: [1, null]}", "compose")
@example(f"bash -c '{ENTRY} --tp \"$A\"'", None)
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_read_or_refused_in_words(text, kind):
    try:
        read = read_launch_text(text, kind=kind)
    except UnreadableCommandError:
        return
    again = read_launch_text(read.text, kind="shell")
    for name in ("text", "python", "prefix", "env", "flags", "secrets", "variables"):
        assert getattr(again, name) == getattr(read, name), name
