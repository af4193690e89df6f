"""Questions of `tuner init`, and those about workload, objective and budget."""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import typer

from search_spaces.prompt_names import parse_prompt_name, parse_shares
from tuner.errors import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

MOST = 2**31 - 1
NOTHING = frozenset({"", "none", "no", "-"})
"""Answers that mean "none"."""

OPEN_REQUESTS = 200
"""Requests of a window with a request rate: enough for a 99th percentile."""

_LIMITS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms"}


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A question.

    Attributes:
        flag: Option that answers it, with dashes.
        text: Text without punctuation at the end.
        default: Answer of Enter, of `--yes` and without a terminal; `None` if only the user knows.
        read: Reads an answer; raises `ValueError` with the mistake and the remedy.
        about: Explanation above the question.
    """

    flag: str
    text: str
    default: str | None
    read: Callable[[str], T]
    about: str = ""


class Asker:
    """Takes answers from flags, from a person, or from the defaults, in this order.

    Args:
        interactive: Whether a person can answer. Questions go to stderr.
    """

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive

    def ask(self, question: Question[T], given: str | None) -> T:
        """Return the answer.

        Args:
            question: The question.
            given: Value of the flag, if given.

        Raises:
            CommandError: The flag is wrong, a question without default cannot be asked, or the
                person left.
        """
        if given is not None:
            try:
                return question.read(given)
            except ValueError as error:
                raise CommandError(f"{question.flag} {given!r}: {error}") from None
        if self.interactive:
            return self._ask_person(question)
        if question.default is None:
            raise CommandError(f"{question.flag} is missing; add it, or answer at a terminal")
        return question.read(question.default)

    def say(self, text: str) -> None:
        """Write a line if a person answers."""
        if self.interactive:
            typer.echo(text, err=True)

    def _ask_person(self, question: Question[T]) -> T:
        if question.about:
            self.say(textwrap.fill(question.about, 88, initial_indent="  ", subsequent_indent="  "))
        while True:
            try:
                answer: str = typer.prompt(
                    question.text,
                    # `read` also refuses an empty answer, with the remedy.
                    default=question.default or "",
                    show_default=bool(question.default),
                    err=True,
                )
            except typer.Abort:
                typer.echo("", err=True)
                raise CommandError("stopped; nothing was written", Exit.INTERRUPTED) from None
            try:
                return question.read(answer)
            except ValueError as error:
                self.say(f"  {error}")


@dataclass(frozen=True, slots=True)
class Load:
    """Workload, objective and budget.

    Attributes:
        concurrencies: Concurrent requests of the closed loops.
        rates: Requests per second of the open loops.
        prompts: Sources and shares, as in the study file.
        output_tokens: Mean tokens of the answers.
        ttft_ms: Limit of the 95th percentile of the time to first token; `None` for no limit.
        goodput: Limits of a good request by the keys of the study file.
        launches: Budget of launches.
        hours: Budget of hours; `None` for no limit.
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
        """Concurrent requests of the quietest point; a request rate counts as 8."""
        return min((*self.concurrencies, *(8 for _ in self.rates)))

    @property
    def most(self) -> int:
        """Concurrent requests of the busiest point; a request rate counts as 128."""
        return max((*self.concurrencies, *(128 for _ in self.rates)))


def ask_load(asker: Asker, given: Mapping[str, str | None], folder: Path) -> Load:
    """Ask for workload, objective and budget.

    Args:
        asker: Asks.
        given: Values of the flags, by their names without dashes.
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


def whole_number(text: str, what: str, example: str, most: int = MOST) -> int:
    """Read a whole number above 0.

    Raises:
        ValueError: The text is something else.
    """
    word = text.strip()
    if not (word.isascii() and word.isdigit() and 0 < int(word) <= most):
        raise ValueError(f"{text!r} is not a {what}; write a whole number above 0, like {example}")
    return int(word)


def _positive(text: str, what: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is not a {what}; write a number above 0, like {example}")
    return value


def _points(text: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Read concurrent requests and, written `4/s`, requests per second."""
    numbers: list[int] = []
    rates: list[float] = []
    for word in text.replace(",", " ").split():
        if word.endswith("/s"):
            rates.append(_positive(word.removesuffix("/s"), "request rate", "4/s"))
        elif word.isascii() and word.isdigit() and 0 < int(word) <= MOST:
            numbers.append(int(word))
        else:
            raise ValueError(f"{word!r} is not a number of requests; write 1 or 1,8,64")
    if not numbers and not rates:
        raise ValueError("a number of requests is needed; write 1 or 1,8,64")
    return tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(rates))


def _rates(text: str) -> tuple[float, ...]:
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError("a request rate is needed; write requests per second, like 4 or 2,8")
    return tuple(dict.fromkeys(_positive(word, "request rate", "4") for word in words))


def _limit(text: str, what: str, example: str, unit: str) -> float | None:
    word = text.strip().lower().removesuffix(unit).strip()
    return None if word in NOTHING else _positive(word, what, example)


def _goodput(text: str) -> dict[str, float]:
    """Read limits of a good request: `ttft:500,tpot:50`."""
    out: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, found, value = part.partition(":" if ":" in part else "=")
        key = _LIMITS.get(name.strip().lower().removesuffix("_ms"))
        if key is None or not found:
            raise ValueError(f"{part!r} is not a limit; write limits like ttft:500,tpot:50")
        out[key] = _positive(value.strip(), "limit in milliseconds", "500")
    return out


def _prompts(folder: Path) -> Question[Mapping[str, float]]:
    def read(text: str) -> Mapping[str, float]:
        parts = [_source(part.strip(), folder) for part in text.split(",") if part.strip()]
        if not parts:
            raise ValueError("a source is needed; write chat or chat,code")
        return {name: round(share, 4) for name, share in parse_shares(",".join(parts))}

    return Question(
        "--prompts",
        "Kind of prompts: chat, code, maths, summary, retrieval, or your .jsonl file",
        "chat,code",
        read,
        "The accept length depends on the prompts, and so does the best setting. Use your own.",
    )


def _source(written: str, folder: Path) -> str:
    """Return a source as in the study file, with paths relative to the study's folder."""
    # `chat` names the built-in set, also beside a folder of this name.
    name, equals, share = written.partition("=") if "?" not in written else (written, "", "")
    if ":" not in name and re.search(r"\.jsonl?$", name):
        name = f"{'jsonl' if name.endswith('l') else 'sharegpt'}:{name}"
    parsed = parse_prompt_name(name)
    if parsed.is_file:
        path = Path(parsed.rest).expanduser()
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        # A relative path stays valid if study and prompts move together.
        relative = os.path.relpath(path.resolve(), folder.resolve())
        outside = relative.startswith("..")
        name = f"{parsed.scheme}:{path.resolve() if outside else relative}"
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
    lambda text: whole_number(text, "number of tokens", "256"),
)
TTFT: Question[float | None] = Question(
    "--ttft-ms",
    "Maximum time to first token in ms (95th percentile; Enter: no limit)",
    "",
    lambda text: _limit(text, "time in milliseconds", "2000", "ms"),
)
GOODPUT: Question[dict[str, float]] = Question(
    "--goodput",
    "Limits of a good answer in ms, like ttft:500,tpot:50 (Enter: minimize latency)",
    "",
    _goodput,
    "With a request rate, tok/s depends on the arrivals; compare answers in time instead.",
)
LAUNCHES: Question[int] = Question(
    "--launches",
    "Maximum number of server launches",
    "24",
    lambda text: whole_number(text, "number of launches", "24"),
)
HOURS: Question[float | None] = Question(
    "--hours",
    "Maximum number of hours (Enter: no limit)",
    "",
    lambda text: _limit(text, "number of hours", "6", ""),
)
