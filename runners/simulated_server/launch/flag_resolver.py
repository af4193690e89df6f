"""Flags on their way from what was given to what SGLang runs, and their refusals."""

from __future__ import annotations

from typing import Any

_LIMIT = 48
"""Running requests of a speculating server where nothing is said (0.5.23)."""


class Resolving:
    """Flags on their way.

    Attributes:
        values: By destination; rewritten in place.
        algorithm: In SGLang's spelling.
        backend: The attention backend.
        cpu: Whether the device is a CPU.
        warnings: What SGLang logs, in order.
    """

    def __init__(
        self, values: dict[str, Any], algorithm: str, backend: str, *, cpu: bool = False
    ) -> None:
        self.values = values
        self.algorithm = algorithm
        self.backend = backend
        self.cpu = cpu
        self.warnings: list[str] = []

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a flag's value
        return self.values.get(name)

    def set(self, **values: object) -> None:
        """Rewrites flags."""
        self.values.update(values)

    @property
    def attention_dp(self) -> bool:
        """Whether attention is data-parallel."""
        return bool(self["enable_dp_attention"]) and int(self["dp_size"] or 1) > 1

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return int(self["page_size"] or 1)

    def limit_requests(self) -> None:
        """48 running requests where nothing is said."""
        if self["max_running_requests"] is None:
            self.set(max_running_requests=_LIMIT)
            self.warnings.append(
                "Max running requests is reset to 48 for speculative decoding. You can override "
                "this by explicitly setting --max-running-requests."
            )

    def no_overlap_on_cpu(self) -> None:
        """The overlap schedule needs a GPU."""
        if self.cpu and not self["disable_overlap_schedule"]:
            self.set(disable_overlap_schedule=True)
            self.warnings.append(
                "Overlap schedule is not implemented for speculative decoding on CPU."
            )


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
