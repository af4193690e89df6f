"""A refusal of flags: what SGLang says, and where in its source it says so."""

from __future__ import annotations


class FlagsRefusedError(Exception):
    """SGLang would end here with a traceback and exit status 1.

    Attributes:
        last_line: The traceback's last line.
        trace: Name of the traceback, see `data/deaths`.
        frame: A frame at its end, as `(file, line, function, source)`, where the recorded ones
            end before it.
    """

    def __init__(
        self, last_line: str, trace: str, frame: tuple[str, int, str, str] | None = None
    ) -> None:
        super().__init__(last_line)
        self.last_line = last_line
        self.trace = trace
        self.frame = frame


def in_hook(
    last_line: str,
    line: int = 242,
    function: str = "handle_speculative_decoding",
    source: str = "raise ValueError(",
) -> FlagsRefusedError:
    """A refusal at a line of `speculative_hook.py` of 0.5.23."""
    frame = ("srt/arg_groups/speculative_hook.py", line, function, source)
    return FlagsRefusedError(last_line, "hook", frame)
