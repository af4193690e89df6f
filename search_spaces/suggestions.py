"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib


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
