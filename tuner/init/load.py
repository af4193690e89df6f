"""Workload, objective and budget of a study, from answers."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.prompt_names import parse_prompt_name, parse_shares
from tuner.init.questions import Asker, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 2**31 - 1
OPEN_REQUESTS = 200
"""Requests of an open loop's window: enough for a 99th percentile."""

_LIMITS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms"}


@dataclass(frozen=True, slots=True)
class Load:
    """Load, objective and budget.

    Attributes:
        concurrencies: Requests in flight of closed loops.
        rates: Requests per second of open loops.
        prompts: Prompt sources and shares, in the syntax of study files.
        output_tokens: Mean tokens per answer.
        ttft_ms: Limit of the 95th percentile of time to first token; `None`: no limit.
        goodput: Limits of a good request by study key; empty without limits.
        launches: Launch budget.
        hours: Budget in hours; `None`: no limit.
    """

    concurrencies: tuple[int, ...]
    rates: tuple[float, ...]
    prompts: Mapping[str, float]
    output_tokens: int
    ttft_ms: float | None
    goodput: Mapping[str, float]
    launches: int
    hours: float | None

    @property
    def fewest(self) -> int:
        """Requests in flight at the lowest load; an open loop counts as a busy server."""
        return min((*self.concurrencies, *(8 for _ in self.rates)))

    @property
    def most(self) -> int:
        """Requests in flight at the point with the highest load; an open loop counts as 128."""
        return max((*self.concurrencies, *(128 for _ in self.rates)))


def ask_load(asker: Asker, given: Mapping[str, str | None], folder: Path) -> Load:
    """Ask for load, objective and budget.

    Args:
        asker: Asks the questions.
        given: Values of options, by their names without dashes.
        folder: Folder of the study file, where its relative paths start.
    """
    rates = asker.ask(RATE, given["rate"]) if given["rate"] is not None else ()
    concurrencies: tuple[int, ...] = ()
    if not rates or given["concurrency"] is not None:
        concurrencies, more = asker.ask(CONCURRENCY, given["concurrency"])
        rates = tuple(dict.fromkeys((*rates, *more)))
    prompts = asker.ask(_prompts(folder), given["prompts"])
    tokens = asker.ask(OUTPUT_TOKENS, given["output-tokens"])
    ttft = asker.ask(TTFT, given["ttft-ms"])
    goodput = asker.ask(GOODPUT, given["goodput"]) if rates or given["goodput"] else {}
    launches = asker.ask(LAUNCHES, given["launches"])
    hours = asker.ask(HOURS, given["hours"])
    return Load(concurrencies, rates, prompts, tokens, ttft, goodput, launches, hours)


def _points(text: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Parse requests in flight (`8`) and requests per second (`4/s`)."""
    numbers: list[int] = []
    rates: list[float] = []
    for word in text.replace(",", " ").split():
        if word.endswith("/s"):
            rates.append(positive(word.removesuffix("/s"), "rate of requests", "4/s"))
        elif word.isascii() and word.isdigit() and 0 < int(word) <= MOST:
            numbers.append(int(word))
        else:
            raise ValueError(f"{word!r} is no number of requests; write it like 1 or 1,8,64")
    if not numbers and not rates:
        raise ValueError("Write at least one number of requests, like 1 or 1,8,64")
    return tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(rates))


def positive(text: str, what: str, example: str) -> float:
    """Parse a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is no {what}; write a number above 0, like {example}")
    return value


def _whole(text: str, what: str, example: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST):
        raise ValueError(f"{text!r} is no {what}; write a whole number above 0, like {example}")
    return int(text)


def _rates(text: str) -> tuple[float, ...]:
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError("Write requests per second, like 4 or 2,8")
    return tuple(dict.fromkeys(positive(word, "rate of requests", "4") for word in words))


def _limit(text: str) -> float | None:
    word = text.strip().lower().removesuffix("ms").strip()
    if word in {"", "none", "no", "-"}:
        return None
    return positive(word, "time in milliseconds", "2000")


def _hours(text: str) -> float | None:
    word = text.strip().lower()
    return None if word in {"", "none", "no", "-"} else positive(word, "number of hours", "6")


def read_goodput(text: str) -> dict[str, float]:
    """Parse limits of a good request: `ttft:500,tpot:50`."""
    out: dict[str, float] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, found, value = part.partition(":" if ":" in part else "=")
        key = _LIMITS.get(name.strip().lower().removesuffix("_ms"))
        if key is None or not found:
            raise ValueError(f"{part.strip()!r} is no limit; write them like ttft:500,tpot:50")
        out[key] = positive(value.strip(), "limit in milliseconds", "500")
    return out


def _prompts(folder: Path) -> Question[Mapping[str, float]]:
    def read(text: str) -> Mapping[str, float]:
        parts = [_source(part.strip(), folder) for part in text.split(",") if part.strip()]
        if not parts:
            raise ValueError("Name at least one source, like chat or chat,code")
        return {name: round(share, 4) for name, share in parse_shares(",".join(parts))}

    return Question(
        "--prompts",
        "Kind of prompts: chat, code, maths, summary, retrieval, or your .jsonl file",
        "chat,code",
        read,
        "The accept length, and so the best setting, depends on the prompts: use your own.",
    )


def _source(written: str, folder: Path) -> str:
    """Prompt source in the syntax of study files; paths start in the folder of the file."""
    # A built-in name wins over a file or folder of the same name.
    name, equals, share = written.partition("=") if "?" not in written else (written, "", "")
    if ":" not in name and re.search(r"\.jsonl?$", name):
        name = f"{'jsonl' if name.endswith('l') else 'sharegpt'}:{name}"
    parsed = parse_prompt_name(name)
    if parsed.is_file:
        path = Path(parsed.rest).expanduser()
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        # A relative path, so that study and prompts can be moved together.
        here = folder.resolve()
        relative = os.path.relpath(path.resolve(), here)
        inside = not relative.startswith("..")
        name = f"{parsed.scheme}:{relative if inside else path.resolve()}"
    return f"{name}{equals}{share}"


CONCURRENCY: Question[tuple[tuple[int, ...], tuple[float, ...]]] = Question(
    "--concurrency",
    "How many requests does your server handle at the same time",
    "1",
    _points,
    "Few requests favour deep drafts, many favour short drafts or none. 1,8,64 finds a setting "
    "that is good at all three; 4/s means 4 requests per second.",
)
RATE: Question[tuple[float, ...]] = Question("--rate", "Requests per second", None, _rates)
OUTPUT_TOKENS: Question[int] = Question(
    "--output-tokens",
    "How many tokens does an answer have on average",
    "256",
    lambda text: _whole(text, "number of tokens", "256"),
)
TTFT: Question[float | None] = Question(
    "--ttft-ms",
    "Maximum time to first token in ms (95th percentile; Enter: no limit)",
    "",
    _limit,
)
GOODPUT: Question[dict[str, float]] = Question(
    "--goodput",
    "Limits of a good answer in ms, like ttft:500,tpot:50 (Enter: minimize latency)",
    "",
    read_goodput,
    "With a request rate, tok/s depends on the arrivals; compare answers in time instead.",
)
LAUNCHES: Question[int] = Question(
    "--launches",
    "Maximum number of server launches",
    "24",
    lambda text: _whole(text, "number of launches", "24"),
)
HOURS: Question[float | None] = Question(
    "--hours", "Maximum number of hours (Enter: no limit)", "", _hours
)
