"""Ctrl-C: the first one stops cleanly, the second one exits at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

EXIT_INTERRUPTED = 130

_REPEAT_S = 0.05
"""Seconds until a dropped signal is sent again."""

_repeated: list[int] = []
"""Signals that were sent again and have not arrived yet."""

_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"
"""The status line hides the cursor, and `os._exit` does not restore it."""


@contextlib.contextmanager
def repeat_dropped() -> Iterator[None]:
    """Send a signal again if Python drops its `KeyboardInterrupt`.

    Python drops an exception that is raised in a destructor or in a callback of a weak reference,
    both of which run during imports. A sweep would ignore that Ctrl-C.
    """
    before = sys.unraisablehook

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        _repeated.append(signal.SIGINT)
        # Later, because an exception raised in this hook is dropped too.
        timer = threading.Timer(_REPEAT_S, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = before
        _repeated.clear()


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into one `KeyboardInterrupt`, never in a shielded section.

    Shielded sections stop a server or write a record. A signal in a section is raised at its end.
    The second signal calls `on_second`, which ends the server's processes, and exits at once.

    SIGHUP is included because the server has its own session and would survive a closed terminal.
    An ignored SIGHUP (`nohup`) stays ignored.
    """

    def __init__(self, on_second: Callable[[], None], how_to_continue: str = "") -> None:
        self._on_second = on_second
        self._how_to_continue = how_to_continue
        self._count = 0
        self._depth = 0
        self._pending = False
        self._before: dict[int, signal.Handlers | Callable[..., object] | int | None] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)
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
        is_repeat = bool(_repeated) and self._count == 1
        _repeated.clear()
        if not is_repeat:
            self._first_or_second()
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt

    def _first_or_second(self) -> None:
        self._count += 1
        if self._count > 1:
            try:
                self._on_second()
            finally:
                _write_line(f"ended at once{self._how_to_continue}")
                os._exit(EXIT_INTERRUPTED)
        _write_line("stopping the server; press Ctrl-C again to end at once")

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Delay the first signal to the end of the section."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._pending and not self._depth:
            self._pending = False
            raise KeyboardInterrupt


def _write_line(text: str) -> None:
    """Write a line to stderr past Python's buffers, which the signal may have interrupted."""
    # After SIGHUP the terminal may be closed.
    with contextlib.suppress(OSError):
        cursor = _SHOW_CURSOR if os.isatty(_STDERR) else ""
        os.write(_STDERR, f"{cursor}\n{text}\n".encode())
