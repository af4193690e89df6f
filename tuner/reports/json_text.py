"""JSON as every command prints it."""

from __future__ import annotations

import json
import math
from typing import Any


def dump(data: dict[str, Any]) -> str:
    """The text of a JSON document: `null` for what is not a number, one line at the end."""
    return json.dumps(_without_nan(data), indent=2, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:  # noqa: ANN401 - JSON
    """`null` for what is not a number (a percentile of no requests): JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
