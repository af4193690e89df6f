"""Export the JSON content as YAML with comments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tuner.exports.documents import document
from tuner.exports.yaml_text import comments, dumped
from tuner.reports.json_text import dump

if TYPE_CHECKING:
    from tuner.exports.exported import Exported

EXECUTABLE = False


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    head = comments([*exported.remarks, *exported.changes])
    # Via JSON, so that both exports are equal (NaN, tuples).
    return head + dumped(json.loads(dump(document(exported))))
