"""Configurations: everything that a study varies about a server, as plain frozen values.

A configuration holds only what the study varies; the fixed part (model path, tp-size, ...) is the
study's. Two equal configurations are the same server: build them through
`search_spaces.rules.legality.canonical`, which maps every spelling of a server to one form.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = bool | int | float | str | None
"""A flag's or variable's value. `None` means: not set (removed where the caller has set it)."""

NO_SPECULATION = "none"


@dataclass(frozen=True, slots=True)
class Speculation:
    """How drafts are made and verified.

    Attributes:
        algorithm: `"none"`, or SGLang's name in upper case (`"EAGLE3"`, `"STANDALONE"`, ...).
        num_steps: Draft steps per cycle; `None` for `"none"`.
        topk: Branches per draft step (`--speculative-eagle-topk`).
        num_draft_tokens: Tokens that one verify checks, the bonus token's slot included.
    """

    algorithm: str = NO_SPECULATION
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None

    @property
    def enabled(self) -> bool:
        """Whether the server speculates at all."""
        return self.algorithm != NO_SPECULATION

    @property
    def drafter(self) -> Drafter:
        """What of it a running server keeps."""
        return Drafter(self.algorithm, self.topk)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of `docs/contract.md`; keys that do not apply are left out."""
        out: dict[str, Any] = {"algorithm": self.algorithm}
        for name in ("num_steps", "topk", "num_draft_tokens"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        return out


class Drafter(NamedTuple):
    """What a running server cannot take on of how it drafts.

    Attributes:
        algorithm: As of `Speculation`.
        topk: Likewise.
    """

    algorithm: str
    topk: int | None

    def __str__(self) -> str:
        """`"EAGLE3"`, or `"EAGLE3, topk 4"` of trees."""
        is_tree = self.topk is not None and self.topk > 1
        return f"{self.algorithm}, topk {self.topk}" if is_tree else self.algorithm


@dataclass(frozen=True, slots=True)
class Setting:
    """The part of a configuration that a running server can take on without restart.

    Attributes:
        num_steps: Draft steps; `None`: it can take on nothing.
        num_draft_tokens: Tokens that one verify checks; left out, those of a chain.
    """

    num_steps: int | None = None
    num_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        # So that a chain has one spelling. Studies stored before trees were switched have only
        # the steps.
        if self.num_draft_tokens is None and self.num_steps is not None:
            object.__setattr__(self, "num_draft_tokens", self.num_steps + 1)

    @property
    def size(self) -> tuple[int, int]:
        """Steps and draft tokens, by which settings are sorted; zeros where there are none."""
        return self.num_steps or 0, self.num_draft_tokens or 0

    def __str__(self) -> str:
        """`"5"` of a chain, `"3/6"` of a tree: steps and draft tokens."""
        steps, draft_tokens = self.size
        return str(steps) if draft_tokens == steps + 1 else f"{steps}/{draft_tokens}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The inverse of `str`.

        Raises:
            ValueError: It is no setting.
        """
        steps, slash, draft_tokens = text.partition("/")
        return cls(int(steps), int(draft_tokens) if slash else None)


def largest(settings: Iterable[Setting]) -> Setting:
    """The least setting in which all of these have room; it may be none of them."""
    steps, draft_tokens = zip(*(setting.size for setting in settings), strict=True)
    return Setting(max(steps), max(draft_tokens))


def _frozen(values: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    # JSON has lists for a flag of several words, which today's command may set.
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
        flags: SGLang flags (no leading dashes) that the study varies, sorted by name.
        env: Environment variables that the study varies, sorted by name.
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
        """Builds a configuration from mappings, in any order."""
        return cls(speculation or Speculation(), draft_tp, _frozen(flags or {}), _frozen(env or {}))

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape of `docs/contract.md`."""
        return {
            "speculation": self.speculation.to_dict(),
            "draft_tp": self.draft_tp,
            "flags": dict(self.flags),
            "env": dict(self.env),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls.of(
            Speculation(**data["speculation"]),
            draft_tp=data.get("draft_tp"),
            flags=data.get("flags") or {},
            env=data.get("env") or {},
        )

    @property
    def key(self) -> str:
        """A short digest, equal for equal configurations, stable across runs and versions."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def setting(self) -> Setting:
        """What a server that can be switched would be told to run this configuration."""
        speculation = self.speculation
        if speculation.num_steps is None:
            return Setting()
        return Setting(speculation.num_steps, speculation.num_draft_tokens)

    def with_setting(self, setting: Setting) -> Self:
        """This configuration at another setting."""
        if setting.num_steps is None:
            return self
        speculation = replace(
            self.speculation,
            num_steps=setting.num_steps,
            num_draft_tokens=setting.num_draft_tokens,
        )
        return replace(self, speculation=speculation)
