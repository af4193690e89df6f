"""Parse SGLang's flags on a command line, with SGLang's lists of options."""

from __future__ import annotations

import difflib
import functools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces.flags.flags import canonical_flag, canonical_flag_value
from search_spaces.flags.options import RENAMED, REPLACED, VERSIONS, Option, options
from search_spaces.launch_commands.shell_expansion import live, shown
from search_spaces.secrets import is_reference, is_secret, redact, redact_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from search_spaces.configuration import Value
    from search_spaces.study_file.values import FixedValue

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_NEGATIVE = re.compile(r"-\d+(\.\d*)?|-\.\d+")


@dataclass(slots=True)
class ReadFlags:
    """Flags of a command line.

    Attributes:
        flags: Values by canonical name; secrets are `$NAMES`.
        words: The command line with secrets replaced (live variables still marked).
        secrets: Flags with a secret value.
        replaced: Flags whose secret was written in the text.
        notes: Notes on guesses.
    """

    flags: dict[str, FixedValue] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    name: str  # canonical
    option: Option | None
    note: str | None = None


def read_flags(words: Sequence[str], *, model_first: bool = False) -> ReadFlags:
    """Parse the words after SGLang's entry point.

    Args:
        words: The words; they may contain live variables (`shell_expansion.LIVE`).
        model_first: Whether the first word may be the model without a flag, as for `sglang serve`
            (0.5.23, `cli/serve.py`).
    """
    read = ReadFlags()
    at = 0
    if model_first and words and not words[0].startswith("-"):
        read.flags["model-path"] = _value(words[0], None)
        read.words.append(words[0])
        at = 1
    while at < len(words):
        word = words[at]
        if not _FLAG.match(word):
            _stray(word, read)
            at += 1
            continue
        spelled, equals, inline = word.partition("=")
        found = resolve(spelled)
        following = [inline] if equals else _following(words[at + 1 :], found)
        at += 1 if equals else 1 + len(following)
        _add(spelled, found, following, read, inline=bool(equals))
    return read


def _stray(word: str, read: ReadFlags) -> None:
    read.words.append(redact_text(word))
    read.notes.append(
        f"`{shown(redact_text(word))}` is no flag and no flag's value; it is left out"
    )


def _add(
    spelled: str, found: _Found, following: list[str], read: ReadFlags, *, inline: bool
) -> None:
    name = found.name
    if found.note:
        note = found.note
        if found.option is None and following and not inline:
            value = "" if is_secret(name) else f" `{shown(redact_text(following[0]))}`"
            note += f", with the value{value} after it"
        read.notes.append(note)
    before = read.flags.get(name)
    if is_secret(name):
        if name not in read.secrets:
            read.secrets.append(name)
        given, following = following, [_redacted(name, value) for value in following[:1]]
        if given and not is_reference(shown(given[0])):
            read.replaced.append(name)
    elif following:
        following = [redact_text(value) for value in following]
    read.flags[name] = _values(following, found.option, inline=inline)
    if inline:
        read.words.append(f"{spelled}={following[0]}")
    else:
        read.words += [spelled, *following]
    if before is not None and before != read.flags[name]:
        read.notes.append(f"`--{name}` is given more than once; the last one counts, as in SGLang")
    _remark(name, read)


def _redacted(name: str, value: str) -> str:
    if is_reference(shown(value)) and shown(value) != value:
        return value
    return live(str(redact(name, "x")).lstrip("$"))


def _remark(name: str, read: ReadFlags) -> None:
    value = read.flags[name]
    if name == "config":
        read.notes.append(f"Flags in the file of `--config {value}` are not read")
    elif name == "node-rank" and isinstance(value, int) and value > 0:
        read.notes.append(f"This is the command of node {value}, not of the first one")
    elif name == "nnodes" and value != 1:
        read.notes.append(f"The server runs on {value} nodes; the tuner starts servers on one")


def _following(rest: Sequence[str], found: _Found) -> list[str]:
    option = found.option
    if option is None:
        return list(rest[:1]) if rest and not _is_flag(rest[0]) else []
    if option.takes == 0:
        return []
    if option.takes == 1:
        # SGLang would refuse a flag here. Continue to find the user's other flags.
        return list(rest[:1]) if rest and not _is_flag(rest[0]) else []
    values = []
    for word in rest:
        if _is_flag(word):
            break
        values.append(word)
    return values[:1] if option.takes == "?" else values


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not _NEGATIVE.fullmatch(word) and len(word) > 1


def _values(following: Sequence[str], option: Option | None, *, inline: bool) -> FixedValue:
    if not following:
        return True
    if inline or len(following) == 1:
        return _value(following[0], option)
    return tuple(_value(word, option) for word in following)


def _value(text: str, option: Option | None) -> Value:
    plain = shown(text)
    if option is not None and option.type == "float" and not re.fullmatch(r"-?\d+", plain):
        try:
            number = float(plain)
        except ValueError:
            return plain
        return number if math.isfinite(number) else plain
    return canonical_flag_value(plain)


def resolve(spelled: str) -> _Found:
    """Option that a flag's spelling selects in argparse, in the newest version."""
    plain = spelled.lstrip("-")
    name = canonical_flag(plain)
    for version in reversed(VERSIONS):
        known = options(version)
        # SGLang's parser has no underscores and no older short names, but users write them.
        option = known.get(plain) or known.get(name)
        if option is not None:
            return _Found(name, option, _changed(spelled, name, version))
    if (newer := RENAMED.get(name)) is not None:
        note = f"`{spelled}` is the old name of `--{newer}`"
        return _Found(newer, options(VERSIONS[-1])[newer], note)
    for version in reversed(VERSIONS):
        short = _abbreviated(plain.replace("_", "-"), version)
        if short is not None:
            full, option = short
            name = canonical_flag(full)
            note = f"`{spelled}` is taken as short for `--{full}`"
            return _Found(name, option, _changed(spelled, name, version) or note)
    return _Found(name, None, _unknown(spelled, name))


def _changed(spelled: str, name: str, version: str) -> str | None:
    if version == VERSIONS[-1]:
        return None
    place = REPLACED.get(name)
    advice = f"{place} took its place" if place else _near(name)
    had = [v for v in VERSIONS if name in _canonical_names(v)]
    seen = had[0] if len(had) < 2 else f"{had[0]} to {had[-1]}"
    return f"`{spelled}` is a flag of SGLang {seen} that {VERSIONS[-1]} does not have; {advice}"


def _unknown(spelled: str, name: str) -> str:
    place = REPLACED.get(name)
    advice = f"{place} took its place" if place else _near(name)
    versions = f"{', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}"
    return f"`{spelled}` is unknown to SGLang {versions}; it is kept as it is ({advice})"


def _near(name: str) -> str:
    close = difflib.get_close_matches(name, sorted(options(VERSIONS[-1])), n=1, cutoff=0.6)
    return f"the nearest is `--{close[0]}`" if close else "nothing is near it"


@functools.cache
def _canonical_names(version: str) -> frozenset[str]:
    return frozenset(canonical_flag(name) for name in options(version))


def _abbreviated(plain: str, version: str) -> tuple[str, Option] | None:
    if not plain:
        return None
    known = options(version)
    fitting = [name for name in known if name.startswith(plain)]
    if len({known[name].name for name in fitting}) != 1:
        return None
    return fitting[0], known[fitting[0]]
