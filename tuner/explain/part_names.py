"""What the parts of a cycle are called."""

from __future__ import annotations

_NAMES = {
    "draft": "draft",
    "draft_extend": "draft extend",
    "verify": "verify",
    "rest": "rest",
}
_DECODING = {"verify": "decode forward"}


def part_name(name: str, *, speculates: bool = True) -> str:
    """`"draft extend"`; without speculation the target's forward verifies nothing."""
    return _NAMES[name] if speculates else _DECODING.get(name, _NAMES[name])
