"""Ctrl-C: once ends cleanly, twice ends now."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

EXIT_INTERRUPTED = 130

_came: list[int] = []
"""Each Ctrl-C since `noted` notes them. One that was raised and seen ends the command, so that what
`Interrupts` finds here was dropped."""

_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"
"""The status line hides it, and nobody else brings it back after `os._exit`."""


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Notes each Ctrl-C, beside raising it, until `Interrupts` takes over.

    Python drops an exception that is raised in a destructor or in a weak reference's callback, as
    its imports have them: a sweep would begin all the same, behind the back of who stopped it.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _came.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        _came.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into one `KeyboardInterrupt`, never in a shielded section.

    Shielded are the moments that must not be torn: stopping a server, writing a record. A signal
    there is raised at the end of the section. The second signal calls `on_second` (which ends
    the server's processes) and leaves at once.

    SIGHUP, since a closed terminal would else leave the server, which has a session of its own,
    on its GPUs; where the caller ignores it (`nohup`) it stays ignored.
    """

    def __init__(self, on_second: Callable[[], None], how_to_go_on: str = "") -> None:
        self._on_second = on_second
        self._how_to_go_on = how_to_go_on
        self._count = 0
        self._depth = 0
        self._pending = False
        self._before: dict[int, signal.Handlers | Callable[..., object] | int | None] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)
        if _came:
            self.__exit__(None, None, None)
            raise KeyboardInterrupt
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            try:
                self._on_second()
            finally:
                _say(f"ended at once{self._how_to_go_on}")
                os._exit(EXIT_INTERRUPTED)
        _say("stopping the server; press Ctrl-C again to end at once")
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """A section in which the first signal waits until the end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._pending and not self._depth:
            self._pending = False
            raise KeyboardInterrupt


def _say(text: str) -> None:
    """A line on stderr, past Python's buffers: the signal may have come while they are written."""
    # After SIGHUP there may be nobody to read it.
    with contextlib.suppress(OSError):
        cursor = _SHOW_CURSOR if os.isatty(_STDERR) else ""
        os.write(_STDERR, f"{cursor}\n{text}\n".encode())
