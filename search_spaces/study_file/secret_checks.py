"""Secrets that are written out in a study: it is stored with its results, where they would stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search_spaces.secrets import (
    holds_token,
    is_reference,
    is_secret,
    redact_text,
    reference,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.study_file.study import Server, SpaceSpec
    from search_spaces.study_file.yaml_nodes import Path

_WHY = "it would be stored with the results"


def check_secrets(server: Server | None, space: SpaceSpec | None) -> Iterator[tuple[Path, str]]:
    """Values that are secrets and no `$NAME`; the messages do not show them."""
    if server is not None:
        yield from _named(server.flags, ("server", "flags"))
        yield from _named(server.env, ("server", "env"))
        for index, word in enumerate(server.prefix):
            if redact_text(word) != word:
                message = (
                    f"Is a secret, and {_WHY}: set the variable under `server.env` as "
                    "`NAME: $NAME`, which takes it from the environment of the tuner"
                )
                yield ("server", "prefix", index), message
    if space is not None:
        yield from _named(space.flags, ("space", "flags"))
        yield from _named(space.env, ("space", "env"))
        for index, part in enumerate(space.speculation):
            yield from _named(part.flags, ("space", "speculation", index, "flags"))
        for index, condition in enumerate(space.conditions):
            for key in ("when", "then"):
                at: Path = ("space", "conditions", index, key)
                yield from _named(getattr(condition, key).flags, (*at, "flags"))
                yield from _named(getattr(condition, key).env, (*at, "env"))


def _named(values: Mapping[str, Any], at: Path) -> Iterator[tuple[Path, str]]:
    for name, value in values.items():
        several = isinstance(value, tuple)
        for index, given in enumerate(value if several else (value,)):
            if (message := _written_out(name, given)) is not None:
                yield (*at, name, index) if several else (*at, name), message


def _written_out(name: str, value: object) -> str | None:
    if value is None or value is False or value == "" or is_reference(value):
        return None
    if is_secret(name):
        return (
            f"Is a secret, and {_WHY}: write `{name}: {reference(name)}`, the name of an "
            "environment variable that holds it"
        )
    if redact_text(str(value)) == str(value):
        return None
    return (
        f"Holds a secret, and {_WHY}: leave it out, and give it to the server by an environment "
        "variable (`server.env: {HF_TOKEN: $HF_TOKEN}`)"
    )


def tokens_in(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a file, comments among them, that hold one by its look; counted from 1."""
    for number, line in enumerate(text.splitlines(), start=1):
        if holds_token(line):
            yield number, f"Holds what looks like an access token or password; {_WHY}: leave it out"
