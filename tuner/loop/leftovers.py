"""Launches without an end: what a killed tuner left, or an interrupt between two steps."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from results.records import LaunchState, ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import Launch
    from results.store import Store
    from runners.base import Runner


def end_leftovers(store: Store, study_id: int, runner: Runner) -> Iterator[tuple[Launch, int]]:
    """Ends the servers of launches that are stored as running, and stores them as lost.

    Their unfinished trials are taken up by the agenda.

    Yields:
        Each such launch, and how many processes of it were ended.
    """
    for launch in store.unfinished(study_id).launches:
        # Killed before the process was recorded: its mark alone has to do.
        process = launch.process or ProcessIdentity(0, 0.0, launch.intent.mark, 0)
        ended = runner.end_leftover(process)
        store.finish_launch(
            study_id, launch.id, LaunchState.LOST, None, log_digest=log_digest(launch)
        )
        yield launch, len(ended)


def log_digest(launch: Launch) -> str | None:
    """SHA-256 of a launch's log as it is now; `None` where there is none to read."""
    try:
        with Path(launch.intent.log).open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    except OSError:
        return None


def seconds_seen(launch: Launch) -> float:
    """How long a launch without an end was at work, in real seconds, as far as can be known.

    From the start of its process to the last line of its log: with the tuner its requests ended,
    and an idle server writes none (SGLang 0.5.23). 0 where neither is known.
    """
    if launch.process is None or launch.process.started <= 0:
        return 0.0
    try:
        last = Path(launch.intent.log).stat().st_mtime
    except OSError:
        return 0.0
    begun = max(launch.process.started, launch.created or 0.0)
    return max(0.0, min(last, time.time()) - begun)
