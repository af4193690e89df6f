"""Sentences folded to the width of a page."""

from __future__ import annotations

import re
import textwrap

from tuner.init.commented_yaml import WIDTH

_NO_BREAK = "\xa0"


def wrapped(text: str, first: str, others: str) -> list[str]:
    """Lines of at most `WIDTH` columns; what stands in backticks is to be copied and not split."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
