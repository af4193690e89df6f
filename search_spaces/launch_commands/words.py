"""Find SGLang's entry point in the words of a command, behind prefixes and containers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.launch_commands.layers import (
    CONTAINER_ENGINES,
    Layer,
    Words,
    container_layer,
    kubectl_layer,
)
from search_spaces.launch_commands.shell_expansion import LIVE, shown, unread

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES = frozenset(
    {"sglang.launch_server", "sglang.srt.server", "sglang.srt.entrypoints.http_server"}
)
"""Python modules that start one SGLang server (`sglang.srt.server` was the first one's name)."""

DEFAULT_ENTRY = ("python3", "-m", "sglang.launch_server")
"""What an image of SGLang is taken to run where only flags are given."""

KEYWORDS = frozenset(
    {"then", "do", "else", "if", "elif", "while", "until", "{", "!", "exec", "time", "command",
     "nohup", "builtin", "eval"}
)  # fmt: skip
"""Words that the shell takes off before it looks for a program, and `nohup`."""

BUILTINS = frozenset({"export", "declare", "typeset", "readonly", "local", "unset", "set"})
"""Commands of the shell that set variables."""

_PYTHON = re.compile(r"(.*/)?(python|pypy)[0-9.]*")
_PYTHON_SCRIPT = re.compile(r"(.*/)?launch_server\.py")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ash"})
_LAUNCH = re.compile(r"sglang\.(launch_server|srt\.)|\bsglang\s+serve\b|launch_server\.py")
_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXPORTED = re.compile(r"--export=(.*)", re.DOTALL)
_SSH_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A launch in a text.

    Attributes:
        python: Interpreter; `None` for `sglang serve`.
        entry: Words of the entry point.
        arguments: Words after it.
        env: Variables that reach SGLang; `None` removes one.
        layers: Layers around it, outermost first.
        notes: Notes on guesses.
        service: Service, container or program of a file.
    """

    python: str | None
    entry: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()
    service: str = ""


ReadScript = Callable[[str, Mapping[str, "str | None"], int], Iterator[Found]]
"""Reads a script, given the variables that it has and how many shells are around it."""


def from_words(
    words: Sequence[str], env: Mapping[str, str | None], read: ReadScript, depth: int = 0
) -> Iterator[Found]:
    """Return the launches in the words of one command.

    Args:
        words: Words as a program receives them.
        env: Variables of the command.
        read: Reads scripts among the words (`bash -c TEXT`).
        depth: Number of enclosing shells.
    """
    if depth > _DEEPEST:
        return
    rest = list(words)
    variables = dict(env)
    prefix: list[str] = []
    while rest:
        if (entry := _entry(rest)) is not None:
            yield _entered(entry, rest, variables, prefix)
            return
        inner = _around(rest, variables, prefix, read, depth + 1)
        if inner is not None:
            yield from inner
            return
        word = rest.pop(0)
        base = word.rsplit("/", 1)[-1]
        if base == "env" and rest and (_SET.match(rest[0]) or rest[0].startswith("-")):
            del rest[: _env_words(rest, variables)]
            continue
        if not _sets_variables(word, prefix, variables):
            prefix.append(word)


def _sets_variables(word: str, prefix: list[str], variables: dict[str, str | None]) -> bool:
    """Whether a word before the entry point only sets variables."""
    sudo = prefix[:1] == ["sudo"] and "=" in word and not word.startswith("-")
    if (sudo or not prefix) and (found := _SET.fullmatch(word)):
        variables[found[1]] = found[2]
        return True
    given: Sequence[str] = ()
    if (exported := _EXPORTED.fullmatch(word)) is not None:
        given = exported[1].split(",")  # srun --export=ALL,A=1
    elif prefix[-1:] == ["-x"] and prefix[0].startswith("mpi"):
        given = (word,)  # mpirun -x A=1
    variables |= {item[1]: item[2] for item in filter(None, map(_SET.fullmatch, given))}
    # A dash of a list and a process id are not names of programs.
    nothing = word.startswith("-") or word.isdigit() or word in KEYWORDS | BUILTINS
    return not prefix and nothing


def _around(
    words: list[str],
    env: Mapping[str, str | None],
    prefix: list[str],
    read: ReadScript,
    depth: int,
) -> Iterator[Found] | None:
    """Launches in the container, remote machine or shell at the beginning."""
    word, rest = words[0], words[1:]
    base = word.rsplit("/", 1)[-1]
    contained = None
    if base in CONTAINER_ENGINES:
        contained = container_layer(words, env)
    elif base == "kubectl":
        contained = kubectl_layer(words)
    if contained is not None:
        words = list(with_entry(contained.words, contained.layer.image))
        inner = from_words(words, contained.env, read, depth)
        return _within(inner, prefix, contained.layer, contained.notes)
    if base == "ssh" and (end := _ssh_end(rest)) is not None:
        text = " ".join(unread(w) for w in rest[end:])
        layer = Words((word, *rest[:end]), joins=True)
        return _within(read(text, {}, depth), prefix, layer)
    if (script := _script(base, rest)) is not None:
        return _within(read(unread(script), env, depth), prefix)
    if _holds_script(word):
        word = re.sub(r"^--[a-z-]+=", "", word)  # sbatch --wrap=TEXT
        notes = []
        if prefix:
            shown_prefix = shown(" ".join(prefix))
            notes.append(f"It is started within `{shown_prefix} ...`, which is left out")
        return _within(read(unread(word), env, depth), [], None, notes)
    return None


def _within(
    inner: Iterator[Found],
    prefix: Sequence[str],
    layer: Layer | None = None,
    notes: Sequence[str] = (),
) -> Iterator[Found]:
    around: tuple[Layer, ...] = (Words(tuple(prefix)),) if prefix else ()
    if layer is not None:
        around = (*around, layer)
    for found in inner:
        yield replace(found, layers=(*around, *found.layers), notes=(*notes, *found.notes))


def _entered(
    entry: tuple[str | None, int], words: Sequence[str], env: Mapping[str, str | None],
    prefix: Sequence[str],
) -> Found:  # fmt: skip
    python, length = entry
    return Found(
        python=python,
        entry=tuple(words[:length]),
        arguments=tuple(words[length:]),
        env=dict(env),
        layers=(Words(tuple(prefix)),) if prefix else (),
    )


def _entry(words: Sequence[str]) -> tuple[str | None, int] | None:
    """Interpreter and number of words of an entry point at the beginning."""
    base = words[0].rsplit("/", 1)[-1]
    if base == "sglang" and words[1:2] == ["serve"]:
        return None, 2
    if not (_PYTHON.fullmatch(words[0]) or words[0].startswith(LIVE)):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in {"-X", "-W"} else 1
    if words[at : at + 1] == ["-m"] and at + 1 < len(words):
        if words[at + 1] in MODULES:
            return words[0], at + 2
        if words[at + 1] == "sglang.cli.main" and words[at + 2 : at + 3] == ["serve"]:
            return words[0], at + 3
    if at < len(words) and _PYTHON_SCRIPT.fullmatch(words[at]) and "sglang" in words[at]:
        return words[0], at + 1
    return None


def _env_words(rest: Sequence[str], variables: dict[str, str | None]) -> int:
    at = 0
    while at < len(rest):
        word = rest[at]
        if found := _SET.fullmatch(word):
            variables[found[1]] = found[2]
        elif word in {"-u", "--unset"} and at + 1 < len(rest):
            at += 1
            variables[rest[at]] = None
        elif word.startswith("--unset="):
            variables[word.partition("=")[2]] = None
        elif word.startswith("-u") and len(word) > 2:
            variables[word[2:]] = None
        elif not word.startswith("-"):
            break
        at += 1
    return at


def _script(base: str, rest: Sequence[str]) -> str | None:
    """Text that `bash -c TEXT` runs."""
    if base not in _SHELLS:
        return None
    for at, word in enumerate(rest[:-1]):
        if not word.startswith(("-", "+")):
            return None
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return rest[at + 1]
    return None


def _holds_script(word: str) -> bool:
    return bool(re.search(r"\s", word)) and _LAUNCH.search(word) is not None


def _ssh_end(rest: Sequence[str]) -> int | None:
    """Number of words of `ssh` itself: options and host."""
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        at += 2 if len(rest[at]) == 2 and rest[at][1] in _SSH_WITH_VALUE else 1
    return at + 1 if at + 1 < len(rest) else None


def with_entry(words: tuple[str, ...], image: str) -> tuple[str, ...]:
    """Words that run in a container of an SGLang image, which may be flags only."""
    alone = words[:1] != () and words[0].startswith("--") and "sglang" in image
    return (*DEFAULT_ENTRY, *words) if alone else words


def mentions_sglang(text: str) -> bool:
    """Whether a text names an entry point of SGLang."""
    return _LAUNCH.search(text) is not None
