"""Configurations: the part of a server that a study varies, as frozen values.

The fixed part (model path, tp-size, ...) belongs to the study. Configurations in canonical form
(`search_spaces.rules.legality.canonical`) are equal if and only if their servers are the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = bool | int | float | str | None
"""Value of a flag or variable. `None` is not set; a variable of the caller is removed."""

NO_SPECULATION = "none"


@dataclass(frozen=True, slots=True)
class Speculation:
    """Parameters of draft and verify.

    Attributes:
        algorithm: `"none"`, or SGLang's name in upper case (`"EAGLE3"`, `"STANDALONE"`, ...).
        num_steps: Draft steps per cycle; `None` for `"none"`.
        topk: Branches per draft step (`--speculative-eagle-topk`).
        num_draft_tokens: Tokens per verify, the slot of the bonus token included.
    """

    algorithm: str = NO_SPECULATION
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None

    @property
    def enabled(self) -> bool:
        """Whether the server speculates."""
        return self.algorithm != NO_SPECULATION

    @property
    def drafter(self) -> Drafter:
        """The part that a running server cannot switch."""
        return Drafter(self.algorithm, self.topk)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `docs/contract.md`, without keys that do not apply."""
        out: dict[str, Any] = {"algorithm": self.algorithm}
        for name in ("num_steps", "topk", "num_draft_tokens"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        return out


class Drafter(NamedTuple):
    """The part of `Speculation` that a running server cannot switch."""

    algorithm: str
    topk: int | None

    def __str__(self) -> str:
        """Format as `"EAGLE3"`, or `"EAGLE3, topk 4"` for trees."""
        is_tree = self.topk is not None and self.topk > 1
        return f"{self.algorithm}, topk {self.topk}" if is_tree else self.algorithm


@dataclass(frozen=True, slots=True)
class Setting:
    """The part of a configuration that a running server can switch without a restart.

    Attributes:
        num_steps: Draft steps; `None` if nothing can be switched.
        num_draft_tokens: Tokens per verify; the default is `num_steps + 1`, a chain.
    """

    num_steps: int | None = None
    num_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        # A chain has one spelling, and older stored studies have only the steps.
        if self.num_draft_tokens is None and self.num_steps is not None:
            object.__setattr__(self, "num_draft_tokens", self.num_steps + 1)

    @property
    def size(self) -> tuple[int, int]:
        """Steps and draft tokens (0 for `None`), the sort key of settings."""
        return self.num_steps or 0, self.num_draft_tokens or 0

    def __str__(self) -> str:
        """Format as `"5"` for a chain, or as `"3/6"` for a tree: steps and draft tokens."""
        steps, draft_tokens = self.size
        return str(steps) if draft_tokens == steps + 1 else f"{steps}/{draft_tokens}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse the text of `str`.

        Raises:
            ValueError: The text is not a setting.
        """
        steps, slash, draft_tokens = text.partition("/")
        return cls(int(steps), int(draft_tokens) if slash else None)


def largest(settings: Iterable[Setting]) -> Setting:
    """Return the smallest setting whose steps and draft tokens cover all of these."""
    steps, draft_tokens = zip(*(setting.size for setting in settings), strict=True)
    return Setting(max(steps), max(draft_tokens))


def _frozen(values: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    # JSON has lists for flags of several words.
    frozen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return tuple(sorted(frozen.items()))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point of a study's space.

    Attributes:
        speculation: Draft and verify parameters.
        draft_tp: Tensor-parallel size of the draft; `None` where there is no draft.
        flags: Searched SGLang flags without leading dashes, sorted by name.
        env: Searched environment variables, sorted by name.
    """

    speculation: Speculation = field(default_factory=Speculation)
    draft_tp: int | None = None
    flags: tuple[tuple[str, Value], ...] = ()
    env: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(
        cls,
        speculation: Speculation | None = None,
        *,
        draft_tp: int | None = None,
        flags: Mapping[str, Value] | None = None,
        env: Mapping[str, Value] | None = None,
    ) -> Self:
        """Build a configuration from mappings in any order."""
        return cls(speculation or Speculation(), draft_tp, _frozen(flags or {}), _frozen(env or {}))

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `docs/contract.md`."""
        return {
            "speculation": self.speculation.to_dict(),
            "draft_tp": self.draft_tp,
            "flags": dict(self.flags),
            "env": dict(self.env),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build a configuration from the JSON of `to_dict`."""
        return cls.of(
            Speculation(**data["speculation"]),
            draft_tp=data.get("draft_tp"),
            flags=data.get("flags") or {},
            env=data.get("env") or {},
        )

    @property
    def key(self) -> str:
        """A short digest: equal for equal configurations, stable across runs and versions."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def setting(self) -> Setting:
        """The setting that switches a running server to this configuration."""
        speculation = self.speculation
        if speculation.num_steps is None:
            return Setting()
        return Setting(speculation.num_steps, speculation.num_draft_tokens)

    def with_setting(self, setting: Setting) -> Self:
        """Return this configuration with another setting."""
        if setting.num_steps is None:
            return self
        speculation = replace(
            self.speculation,
            num_steps=setting.num_steps,
            num_draft_tokens=setting.num_draft_tokens,
        )
        return replace(self, speculation=speculation)
