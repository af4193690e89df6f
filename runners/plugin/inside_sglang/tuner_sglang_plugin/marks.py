"""Instants on the clock of the device that does the work."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class CpuMarks:
    """Marks of a CPU, which has done the work when the call returns."""

    def mark(self) -> Any:
        """Now."""
        return time.perf_counter()

    def is_past(self, mark: Any) -> bool:  # noqa: ARG002 - the shape of marks
        """Whether the device has come by."""
        return True

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks that are past."""
        return float(end - begin)

    def give_back(self, mark: Any) -> None:
        """It will not be asked about again."""


class CudaMarks:
    """Events on the current stream, read after the GPU has passed them.

    Nothing waits for the GPU. Events are reused, since creating one costs more than recording it.
    """

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - the server's; in schedulers only

        self._make: Callable[[], Any] = partial(torch.cuda.Event, enable_timing=True)
        self._spare: list[Any] = []

    def mark(self) -> Any:
        """Records an event where the stream is now."""
        event = self._spare.pop() if self._spare else self._make()
        event.record()
        return event

    def is_past(self, mark: Any) -> bool:
        """Whether the GPU has come by; does not wait."""
        return bool(mark.query())

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two events that are past."""
        return float(begin.elapsed_time(end)) / 1e3

    def give_back(self, mark: Any) -> None:
        """It will not be asked about again."""
        self._spare.append(mark)
