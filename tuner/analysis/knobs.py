"""A server's configuration as knobs that can be changed separately."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from search_spaces.configuration import Speculation
from search_spaces.secrets import is_export_only, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.configuration import Configuration


class Kind(StrEnum):
    """Kind of a knob."""

    SPECULATION = "speculation"
    """Which algorithm drafts, or none; the draft's numbers and placement come with it."""
    DRAFT = "draft"
    """Steps, topk and draft tokens of one algorithm: one knob, as they go together."""
    DRAFT_TP = "draft_tp"
    FLAG = "flag"
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob: its kind, and its name if there are several of that kind."""

    kind: Kind
    name: str


SPECULATION = Knob(Kind.SPECULATION, "speculation")
DRAFT = Knob(Kind.DRAFT, "draft steps")
DRAFT_TP = Knob(Kind.DRAFT_TP, "draft_tp")

Knobs = dict[Knob, Any]
"""A server: each knob with its value, without those that are not given."""


def knobs_of(
    configuration: Configuration, fixed_flags: Mapping[str, Any], fixed_env: Mapping[str, Any]
) -> Knobs:
    """List the knobs of a configuration and of the study's fixed part, without `None` values."""
    speculation = configuration.speculation
    knobs: Knobs = {SPECULATION: speculation.algorithm}
    if speculation.enabled:
        knobs |= {DRAFT: speculation, DRAFT_TP: configuration.draft_tp}
    flags = {**fixed_flags, **dict(configuration.flags)}
    knobs |= {Knob(Kind.FLAG, n): v for n, v in flags.items() if not is_export_only(n)}
    env = {**fixed_env, **dict(configuration.env)}
    knobs |= {Knob(Kind.VARIABLE, n): v for n, v in env.items()}
    return {knob: value for knob, value in knobs.items() if value is not None}


def differing(a: Knobs, b: Knobs) -> list[Knob]:
    """Knobs in which two servers differ. Knobs of the draft count only within one algorithm."""
    knobs = [knob for knob in dict.fromkeys((*a, *b)) if a.get(knob) != b.get(knob)]
    if SPECULATION in knobs:
        knobs = [knob for knob in knobs if knob not in {DRAFT, DRAFT_TP}]
    return knobs


def value_of_knob(knobs: Knobs, knob: Knob) -> Any:  # noqa: ANN401 - any knob's value
    """Value of a knob. The value of the algorithm is the whole speculation."""
    if knob.kind is Kind.SPECULATION:
        return (knobs[SPECULATION], knobs.get(DRAFT), knobs.get(DRAFT_TP))
    return knobs.get(knob)


def shown_value(knob: Knob, value: Any) -> Any:  # noqa: ANN401 - any knob's value
    """Value of a knob for output: speculation as a `Speculation`, secrets by reference."""
    if knob.kind is Kind.SPECULATION:
        return value[1] or Speculation()
    return value if value is None else redact(knob.name, value)
