"""Write JSON in the form of all commands."""

from __future__ import annotations

import json
import math
from typing import Any


def dump(data: dict[str, Any]) -> str:
    """Text of a JSON document with `null` for NaN and a final line break."""
    return json.dumps(_without_nan(data), indent=2, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Replace NaN (a percentile of no requests) by `None`: JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
