"""Ctrl-C: the first one stops cleanly, the second one exits at once."""

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
"""Each Ctrl-C since `noted` began. A raised one ends the command, so `Interrupts` finds only the
dropped ones here."""

_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"
"""The status line hides the cursor, and `os._exit` does not restore it."""


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Record each Ctrl-C, besides raising it, until `Interrupts` takes over.

    Python drops an exception that is raised in a destructor or in a callback of a weak reference,
    both of which run during imports. Without the record the sweep would start after a Ctrl-C.
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
                _write_line(f"ended at once{self._how_to_continue}")
                os._exit(EXIT_INTERRUPTED)
        _write_line("stopping the server; press Ctrl-C again to end at once")
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt

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
