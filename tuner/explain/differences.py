"""The one knob in which two servers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.knobs import DRAFT, differing, knobs_of

if TYPE_CHECKING:
    from search_spaces import Configuration, Study
    from search_spaces.configuration import Speculation
    from tuner.knobs import Knobs


def server_knobs(configuration: Configuration, study: Study) -> Knobs:
    """A configuration's server, what the study holds fixed included."""
    return knobs_of(configuration, study.server.flags, study.server.env)


def only_difference(own: Knobs, theirs: Knobs) -> tuple[str | None, Any]:
    """The one thing in which two servers differ, by the name of its lever, and its other value."""
    knobs = differing(own, theirs)
    if len(knobs) != 1:
        return None, None
    [knob] = knobs
    if knob != DRAFT:
        return knob.name, theirs.get(knob)
    after = theirs[DRAFT]
    name = draft_difference(own[DRAFT], after)
    return name, None if name is None else getattr(after, name)


def draft_difference(before: Speculation, after: Speculation) -> str | None:
    """Which of a draft's numbers differs; draft tokens may differ with the steps and with topk."""
    if before.topk != after.topk:
        return "topk" if before.num_steps == after.num_steps else None
    if before.num_steps != after.num_steps:
        return "num_steps"
    return "num_draft_tokens" if before.num_draft_tokens != after.num_draft_tokens else None
