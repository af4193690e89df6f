"""Launches without an end: what a killed tuner left, or an interrupt between two steps."""

from __future__ import annotations

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
        store.finish_launch(study_id, launch.id, LaunchState.LOST, None)
        yield launch, len(ended)
