"""Names of prompt sources in study files and commands.

A name is a built-in set (`chat`) or has a scheme: `jsonl:PATH`, `sharegpt:PATH`, `sglang:DATASET`.
Options of SGLang's benchmark can follow a data set:
`sglang:random-ids?random-input-len=512&num-prompts=2000`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILT_IN_SETS = ("chat", "code", "maths", "summary", "retrieval")
"""Prompt sets that ship with the tuner."""

SCHEMES = ("jsonl", "sharegpt", "sglang")
"""Valid prefixes before the colon."""

SGLANG_DATASETS = (
    "random-ids",
    "random",
    "sharegpt",
    "generated-shared-prefix",
    "custom",
    "openai",
    "longbench_v2",
    "speed-bench",
)
"""Data sets of `sglang.benchmark.serving` with one text prompt per request (0.5.23).

Not supported: images (`image`, `mmmu`) and whole sessions (`mooncake`, `agentic-trace`).
"""

_EXAMPLES = {
    "jsonl": "jsonl:prompts.jsonl",
    "sharegpt": "sharegpt:sharegpt.json",
    "sglang": "sglang:random-ids",
}

DATASET_PROMPTS = 1024
"""Prompts drawn from a data set of SGLang without `num-prompts`."""


@dataclass(frozen=True, slots=True)
class PromptName:
    """The parts of a name.

    Attributes:
        written: The whole name.
        scheme: One of `SCHEMES`; empty for a built-in set.
        rest: The built-in set, the path, or the data set.
        options: Options of a data set: SGLang's flags without leading dashes.
    """

    written: str
    scheme: str
    rest: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether `rest` is the path of a file that the tuner reads."""
        return self.scheme in {"jsonl", "sharegpt"}

    @property
    def most_prompts(self) -> int | None:
        """Number of prompts requested from a data set of SGLang; `None` for other sources."""
        if self.scheme != "sglang":
            return None
        return int(dict(self.options).get("num-prompts", DATASET_PROMPTS))


def parse_prompt_name(written: str) -> PromptName:
    """Parse a name.

    Raises:
        ValueError: The name is invalid; the message says what to write.
    """
    scheme, colon, rest = written.partition(":")
    if not colon:
        if written in BUILT_IN_SETS:
            return PromptName(written, "", written)
        raise ValueError(f"Unknown prompt set; {_nearest(written, BUILT_IN_SETS)}{_also(written)}")
    if scheme not in SCHEMES:
        raise ValueError(f"Unknown kind of prompts {scheme!r}; {_nearest(scheme, SCHEMES)}")
    if not rest:
        raise ValueError(
            f"The part after the colon is missing; write a name such as `{_EXAMPLES[scheme]}`"
        )
    if scheme != "sglang":
        return PromptName(written, scheme, rest)
    dataset, question, query = rest.partition("?")
    if dataset not in SGLANG_DATASETS:
        raise ValueError(f"Unknown data set of SGLang; {_nearest(dataset, SGLANG_DATASETS)}")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(question))
    except ValueError:
        raise ValueError(
            "Invalid options; write them as in `?random-input-len=512&num-prompts=2000`"
        ) from None
    options = {name.lstrip("-").replace("_", "-"): value for name, value in pairs}
    count = options.get("num-prompts", "1")
    if not (count.isascii() and count.isdigit() and int(count) > 0):
        raise ValueError(f"num-prompts must be a whole number above 0, not {count!r}")
    return PromptName(written, scheme, dataset, tuple(sorted(options.items())))


def parse_shares(text: str) -> tuple[tuple[str, float], ...]:
    """Parse shares of a command line: `chat=0.5,jsonl:mine.jsonl=0.5`.

    A name without a share has share 1. After options of a data set the share is a second `=`:
    `sglang:random-ids?num-prompts=200=0.5`.

    Returns:
        Names and shares, sorted; the shares sum to 1.

    Raises:
        ValueError: A name is unknown or repeated, or a share is not a positive number.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        written = part.strip()
        start = max(written.rfind("?"), written.rfind("&"))
        name, share = written, ""
        if written.count("=", start + 1) > (start >= 0):
            name, _, share = written.rpartition("=")
        parse_prompt_name(name)
        if name in shares:
            raise ValueError(f"{name} is repeated; remove one")
        try:
            shares[name] = float(share or 1)
        except ValueError:
            shares[name] = 0.0
        if not 0 < shares[name] < float("inf"):
            raise ValueError(f"the share of {name} must be a number above 0, not {share!r}")
    return parts_of_one(shares)


def parts_of_one(shares: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Scale positive shares to sum to 1; the result is sorted by name.

    Raises:
        ValueError: The shares are too far apart for floating point.
    """
    total = sum(shares.values())
    parts = tuple(sorted((name, share / total) for name, share in shares.items()))
    if not all(share > 0 for _, share in parts):
        raise ValueError("The shares are too far apart; write each as a fraction of 1, such as 0.5")
    return parts


def _also(written: str) -> str:
    """Return a hint for a path without a scheme."""
    if written.endswith(".jsonl"):
        return f"; for a file write `jsonl:{written}`"
    if written.endswith(".json"):
        return f"; for a file write `sharegpt:{written}`"
    return ""


def _nearest(word: str, known: tuple[str, ...]) -> str:
    from search_spaces.problems import nearest  # noqa: PLC0415 - difflib is slow

    return nearest(word, known)
