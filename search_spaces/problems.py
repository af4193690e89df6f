"""Problems of a study file."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a study file.

    Attributes:
        key: Path of the key (`"space.speculation[1].topk"`); empty for the whole file.
        line: Line in the file, from 1; `None` if unknown.
        message: What is wrong, and what to write instead.
    """

    key: str
    line: int | None
    message: str

    def to_dict(self) -> dict[str, str | int | None]:
        """The JSON shape of `docs/contract.md`."""
        return {"key": self.key, "line": self.line, "message": self.message}


class StudyFileError(ValueError):
    """A study file cannot be used; `problems` lists every reason."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = [
            f"{source}{f':{p.line}' if p.line else ''}: {f'{p.key}: ' if p.key else ''}{p.message}"
            for p in self.problems
        ]
        super().__init__("\n".join(lines))


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Return `"did you mean ..."`, or the list of known words."""
    lower = {k.lower(): k for k in known}
    wrong = word.lower()
    close = difflib.get_close_matches(wrong, lower, n=4, cutoff=0.6)
    # Two swapped letters are the most common mistake.
    swapped = [match for match in close if sorted(match) == sorted(wrong)]
    begun = [match for match in lower if wrong and match.startswith(wrong)]
    for found in (swapped, close, begun if len(begun) == 1 else []):
        if found:
            return f"did you mean `{lower[found[0]]}`?"
    return f"valid: {', '.join(known)}"
