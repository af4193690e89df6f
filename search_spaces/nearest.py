"""The known word that a wrong one was probably meant to be."""

from __future__ import annotations

import difflib


def nearest(word: str, known: tuple[str, ...]) -> str:
    """`"did you mean ..."`, or the known words."""
    close = difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if close:
        match = next(k for k in known if k.lower() == close[0])
        return f"did you mean `{match}`?"
    return f"known here: {', '.join(known)}"
