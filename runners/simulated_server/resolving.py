"""Flags on their way from what was given to what SGLang runs."""

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
