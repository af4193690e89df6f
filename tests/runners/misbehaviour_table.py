"""The tables of `docs/simulated-server.md`, as the tests read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "simulated-server.md"
_CODE = re.compile(r"`([^`]+)`")


def crashes():
    """Return `(phase, cause, kind, phase of the tuner, fault)` of every crash."""
    rows = [_CODE.findall(row) for row in _rows("### Crashes")]
    return [tuple(row[:5]) for row in rows if len(row) >= 5]


def examples(heading="### Other faults"):
    """Return `(example, result, code)` of every other fault."""
    found = []
    for row in _rows(heading):
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if not cells[0].startswith("`{"):
            continue
        word, *code = cells[2].replace("`", "").split()
        found.append((json.loads(cells[0].strip("`")), word, code[0] if code else None))
    return found


def plugin_examples():
    """Return `(example, result, code)` of every fault of the plugin."""
    return examples("### The tuner's plugin")


def _rows(heading):
    text = PAGE.read_text().split(heading, 1)[1]
    text = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
    return [line for line in text.splitlines() if line.startswith("|")]
