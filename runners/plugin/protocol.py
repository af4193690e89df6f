"""Protocol between the tuner and its plugin inside SGLang (`runners/plugin/inside_sglang`).

The plugin imports nothing of the tuner, so it repeats these definitions; the simulated server uses
them. See `docs/plugin.md`.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

PROTOCOL: Final = 1
"""Version of the status that the tuner understands."""

NAME: Final = "tuner_sglang_plugin"
"""Package and entry point of the plugin, and the first word of its log lines."""

STEPS_VARIABLE: Final = "TUNER_SWITCHABLE_STEPS"
"""Variable that enables hot switching between settings: `1,2,5`, trees `2/4,3/6`."""

CLOCK_VARIABLE: Final = "TUNER_CYCLE_CLOCK"
"""Variable that enables the cycle clock: `1`."""

STATUS: Final = "tuner_plugin"
"""Key of the status in an internal state of `/server_info`."""

STEPS_ARGUMENT: Final = "speculative_num_steps"
DRAFT_TOKENS_ARGUMENT: Final = "speculative_num_draft_tokens"
"""Defaults to a chain: one more than the steps."""
TOKEN_ARGUMENT: Final = "tuner_token"  # noqa: S105 - its name

BUSY: Final = "requests are waiting or running"
"""Reason of a refused switch that is worth a retry."""

CYCLE: Final = "cycle"
"""Key of whole cycles in the clock, beside the parts (`results.records.PARTS`)."""

_FIRST_BUCKET_S: Final = 1e-6
_GROWTH: Final = 1.02


def token_of(mark: str) -> int:
    """Token that a switch must carry, known only to the process that launched the server.

    `/set_internal_state` passes numbers only.

    Args:
        mark: Mark of the launch (`TUNER_LAUNCH`).
    """
    return int(hashlib.sha256(mark.encode()).hexdigest()[:12], 16)


def bucket_of(seconds: float) -> int:
    """Bucket of a duration: bucket i holds [1e-6 * 1.02**i, 1e-6 * 1.02**(i+1)) s."""
    return max(0, math.floor(math.log(max(seconds, _FIRST_BUCKET_S) / _FIRST_BUCKET_S, _GROWTH)))


def bucket_seconds(bucket: int) -> float:
    """Representative duration of a bucket, with an error of up to 1 %."""
    return float(_FIRST_BUCKET_S * _GROWTH ** (bucket + 0.5))
