"""What is watched beside the requests while a window runs: the server itself, and its log."""

from __future__ import annotations

import abc


class WindowWatch(abc.ABC):
    """Looks at one thing before and after a window.

    The load generator calls `begin` when the window opens and `end` when it has closed; neither
    may take long or disturb the server.
    """

    @abc.abstractmethod
    def begin(self) -> None:
        """Notes how things stand."""

    @abc.abstractmethod
    def end(self) -> tuple[str, ...]:
        """Reasons not to believe the window, as `"check: what was seen"`; empty for none."""
