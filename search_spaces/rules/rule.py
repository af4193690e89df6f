"""A legality rule, with the source in which it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from search_spaces.configuration import Speculation
    from search_spaces.study_file.values import FixedValue


ENGINE = "SGLang 0.5.23"
"""The version that the rules were read from."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        name: Stable name, shown with every violation.
        source: Version, file and line.
        check: Returns the message for a candidate that breaks the rule, else `None`.
        env: Environment variables that the rule reads.
        server: Whether the rule also reads other parts. A rule of the environment alone is checked
            once per environment.
    """

    name: str
    source: str
    check: Callable[[Candidate], str | None]
    env: frozenset[str] = frozenset()
    server: bool = True

    def violation(self, server: Candidate) -> Violation | None:
        """Return the violation of a candidate that breaks the rule, else `None`."""
        message = self.check(server)
        return None if message is None else Violation(self.name, message, self.source)


class Rules:
    """Rules of one kind, in the order of their definition.

    Args:
        engine: Software and version in which the rules were read.
        server: See `Rule`.
    """

    def __init__(self, engine: str = ENGINE, *, server: bool = True) -> None:
        self._engine, self._server = engine, server
        self._rules: list[Rule] = []

    def add(
        self, source: str, env: Iterable[str] = ()
    ) -> Callable[[Callable[[Candidate], str | None]], None]:
        """Register the decorated function as a rule."""

        def register(check: Callable[[Candidate], str | None]) -> None:
            name = check.__name__.lstrip("_")
            read = f"{self._engine}, {source}"
            self._rules.append(Rule(name, read, check, frozenset(env), self._server))

        return register

    @property
    def all(self) -> tuple[Rule, ...]:
        """All registered rules."""
        return tuple(self._rules)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a configuration breaks.

    Attributes:
        rule: Name of the rule (`"tree_capacity"`); `"condition"` for a condition of the study.
        message: The problem, and legal values.
        source: Where the rule was read, or the key of the condition (`"space.conditions[1]"`).
    """

    rule: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}; {self.source}]"


_EVERYWHERE = ("", "decode-", "prefill-")
_PAGES = {
    "flashmla": (("", "decode-"), (64,)),
    "trtllm_mla": (("", "decode-"), (32, 64)),
    "cutedsl_mla": (_EVERYWHERE, (32, 64)),
    "trtllm_mha": ((*_EVERYWHERE, "speculative-draft-"), (16, 32, 64, 128)),
    "hpc_ops": (_EVERYWHERE, (64,)),
}
"""Attention backends with the flags that select them and their page sizes.

SGLang replaces any other page size by 64."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server in the form that rules check.

    Attributes:
        speculation: In canonical form.
        draft_tp: Tensor-parallel size of the draft.
        flags: Flags that the server gets: those of the study, overridden by the configuration.
        env: Environment variables, merged in the same way.
        has_draft_model: Whether the study names a draft.
    """

    speculation: Speculation
    draft_tp: int | None
    flags: Mapping[str, FixedValue]
    env: Mapping[str, FixedValue] = field(default_factory=dict)
    has_draft_model: bool = True

    @property
    def shape(self) -> Shape:
        """The algorithm's shape."""
        known = ALGORITHMS.get(self.speculation.algorithm)
        return known.shape if known else Shape.NONE

    @property
    def is_tree(self) -> bool:
        """Whether more than one branch is drafted (an EAGLE-like algorithm, topk > 1)."""
        return self.shape is Shape.TREE and (self.speculation.topk or 0) > 1

    @property
    def is_chain(self) -> bool:
        """Whether one branch is drafted step by step."""
        return self.shape is Shape.TREE and self.speculation.topk == 1

    @property
    def attention_backends(self) -> tuple[FixedValue, ...]:
        """Attention backends in the flags."""
        names = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
        return tuple(self.flags[name] for name in names if name in self.flags)

    @property
    def page_size(self) -> int:
        """KV page size that follows from the flags.

        Source: `arg_groups/overrides.py:1142-1199` (`_mla_backend_page_constraints`).
        """
        size = self.number("page-size", 1)
        for backend, (flags, taken) in _PAGES.items():
            asked = any(self.flags.get(f"{flag}attention-backend") == backend for flag in flags)
            if asked and size not in taken:
                size = 64
        return size

    @property
    def attention_dp(self) -> bool:
        """Whether attention runs data-parallel (`runtime_context.py:191-199`)."""
        enabled = bool(self.flags.get("enable-dp-attention")) and self.number("dp-size", 1) > 1
        return enabled or self.number("attn-dp-size", 1) > 1

    @property
    def drops_adaptive(self) -> bool:
        """Whether SGLang drops `--speculative-adaptive` with a warning.

        Source: `speculative/adaptive_spec_params.py:56-100`.
        """
        return (
            self.speculation.algorithm not in {"EAGLE", "EAGLE3"}
            or self.speculation.topk not in {None, 1}
            or self.attention_dp
            or any(
                self.flags.get(flag)
                for flag in ("enable-multi-layer-eagle", "enable-two-batch-overlap", "enable-pdmux")
            )
        )

    @property
    def drops_mixed_chunk(self) -> bool:
        """Whether SGLang drops `--enable-mixed-chunk`.

        Source: `arg_groups/speculative_hook.py:1112-1125` and `:1305`,
        `speculative/spec_info.py:147-158`.
        """
        algorithm = self.speculation.algorithm
        return algorithm not in {"none", "EAGLE", "EAGLE3", "DFLASH", "DSPARK"}

    def number(self, flag: str, default: int) -> int:
        """Return the whole number of a flag, or the default."""
        value = self.flags.get(flag, default)
        return value if isinstance(value, int) else default
