"""Problems of a study file."""

from __future__ import annotations

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
