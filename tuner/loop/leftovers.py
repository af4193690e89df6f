"""Unfinished launches of a killed tuner or of an interrupt between two steps."""

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
    """Stop the servers of launches that are stored as running, and store the launches as lost.

    `NextLaunch` plans their unfinished trials again.

    Yields:
        Each launch and the number of stopped processes.
    """
    for launch in store.unfinished(study_id).launches:
        # If the tuner was killed before it stored the process, only the mark identifies it.
        process = launch.process or ProcessIdentity(0, 0.0, launch.intent.mark, 0)
        ended = runner.end_leftover(process)
        store.finish_launch(
            study_id, launch.id, LaunchState.LOST, None, log_digest=log_digest(launch)
        )
        yield launch, len(ended)


def log_digest(launch: Launch) -> str | None:
    """SHA-256 of the log of a launch; `None` if the log cannot be read."""
    try:
        with Path(launch.intent.log).open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    except OSError:
        return None


def seconds_seen(launch: Launch) -> float:
    """Running time of an unfinished launch in real seconds; 0 if it is unknown.

    This is the time from the start of its process to the last line of its log. The requests end
    with the tuner, and an idle server writes no line (SGLang 0.5.23).
    """
    if launch.process is None or launch.process.started <= 0:
        return 0.0
    try:
        last = Path(launch.intent.log).stat().st_mtime
    except OSError:
        return 0.0
    begun = max(launch.process.started, launch.created or 0.0)
    return max(0.0, min(last, time.time()) - begun)
