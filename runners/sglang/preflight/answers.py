"""SGLang's answers to launches, as values."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DERIVED = frozenset({"model_path", "tokenizer_path", "speculative_draft_model_path"})
"""Fields whose resolved value is another spelling of what was asked for."""


class NotAskedError(Exception):
    """SGLang could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What SGLang makes of one launch.

    Attributes:
        refused: Its words where it would end at its start, else `None`.
        unanswered: Why nothing can be said: the model's configuration is not here, say.
        values: What it would run with, by field (`"attention_backend"`).
        asked: Those of its fields that the launch gives, as its parser read them.
    """

    refused: str | None = None
    unanswered: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rewritten(self) -> dict[str, tuple[Any, Any]]:
        """What it would run with in place of what was asked for, by field: asked, run."""
        return {
            name: (value, self.values[name])
            for name, value in self.asked.items()
            if name not in _DERIVED and name in self.values and self.values[name] != value
        }


@dataclass(frozen=True, slots=True)
class Answers:
    """SGLang's answers to a list of launches.

    Attributes:
        version: SGLang's.
        import_s: Seconds until it was imported.
        answers: In the order of the launches; fewer where the time was up.
        cut_short: Why there are fewer, where it was not the time.
    """

    version: str
    import_s: float
    answers: tuple[Answer, ...]
    cut_short: str | None = None


class Line(BaseModel):
    """A line that the process in SGLang's environment writes."""

    model_config = ConfigDict(extra="ignore")

    failed: str | None = None
    sglang: str | None = None
    import_s: float = 0.0
    refused: str | None = None
    unanswered: str | None = None
    values: dict[str, Any] = {}
    asked: dict[str, Any] = {}


def answers_of(lines: Sequence[str]) -> Answers:
    """Reads what the process wrote.

    Raises:
        NotAskedError: SGLang could not be imported.
        ValueError: These are not its lines.
    """
    read = [Line.model_validate_json(line) for line in lines]
    if not read or (read[0].sglang is None and read[0].failed is None):
        raise ValueError("no answer")
    if read[0].failed is not None:
        raise NotAskedError(f"SGLang cannot be imported: {read[0].failed}")
    base: dict[str, Any] = {}
    answers = []
    for line in read[1:]:
        for name, value in line.values.items():
            base.setdefault(name, value)
        values = ChainMap(line.values, base) if line.values or line.asked else {}
        answers.append(Answer(line.refused, line.unanswered, values, line.asked))
    return Answers(str(read[0].sglang), read[0].import_s, tuple(answers))
