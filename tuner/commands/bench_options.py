"""Options of `tuner bench`, and the workload and operating point that they define."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from search_spaces.prompt_names import parse_shares
from search_spaces.workload import (
    DEFAULT_OUTPUT_SPREAD,
    MOST_PREFIX_GROUPS,
    MOST_PREFIX_TOKENS,
    Goodput,
    OperatingPoint,
    SharedPrefix,
    Workload,
)
from tuner.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY_VARIABLES = ("SGLANG_API_KEY", "OPENAI_API_KEY")
"""Environment variables with the API key, if `--api-key` is not given."""

_OPEN_LOOP_REQUESTS = 64
_LIMITS = ("ttft", "tpot", "e2e")
_PREFIX = re.compile(r"([1-9][0-9]{0,11})(?::([1-9][0-9]{0,11}))?")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of the command line; `None` for options that are not given.

    Attributes:
        url: `http://host:port`; may end with OpenAI's `/v1`.
        endpoint: Endpoint that receives the load.
        model: The model's name at the server.
        concurrency: Requests in flight.
        request_rate: Requests per second.
        trace: File of arrival times.
        requests: Number of requests in the window.
        burst: Whether all lanes start at once, with whole answers.
        whole_run: Whether the figures cover the run from the first send to the last token.
        repeat: Number of windows.
        output_tokens: Mean tokens per answer.
        output_spread: Largest deviation of an answer's length, as a share of the mean.
        natural_length: Whether the model ends its answers.
        temperature: Sampling temperature.
        sampling: Further sampling parameters, each as `name=value`.
        prompts: Prompt sources and shares.
        shared_prefix: `tokens` or `tokens:groups`.
        goodput: `ttft:200,tpot:50,e2e:9000`, in milliseconds.
        api_key: Bearer token.
        python: Python of an environment with SGLang and the model's tokenizer.
        seed: Selects prompts, lengths of answers and arrivals.
        processes: Client processes.
        timeout_s: Limit of one request in real seconds.
    """

    url: str
    endpoint: Literal["generate", "completions", "chat"]
    model: str | None
    concurrency: int | None
    request_rate: float | None
    trace: Path | None
    requests: int | None
    burst: bool
    whole_run: bool
    repeat: int
    output_tokens: int
    output_spread: float | None
    natural_length: bool
    temperature: float
    sampling: Sequence[str]
    prompts: str
    shared_prefix: str | None
    goodput: str | None
    api_key: str | None
    python: str | None
    seed: int
    processes: int | None
    timeout_s: float

    @property
    def base_url(self) -> str:
        """Address of the server without the paths of its endpoints."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def window_kind(self) -> Literal["steady", "burst", "whole_run"]:
        """The part of the load that the figures cover."""
        if self.whole_run:
            return "whole_run"
        return "burst" if self.burst else "steady"

    def key(self) -> str | None:
        """Return the API key of the command line, else of the environment.

        Raises:
            CommandError: An HTTP header cannot contain the key.
        """
        found = {"--api-key": self.api_key} | {name: os.environ.get(name) for name in KEY_VARIABLES}
        for name, key in found.items():
            if not key:
                continue
            if not (key.isascii() and key.isprintable()):
                raise CommandError(
                    f"{name} has a line break or a character that is not ASCII; correct the key"
                )
            return key
        return None

    def point(self) -> OperatingPoint:
        """Return the operating point.

        Raises:
            CommandError: More than one kind of load is given, or `burst` with an open loop.
        """
        concurrency = self.concurrency
        given = {
            "--concurrency": concurrency,
            "--request-rate": self.request_rate,
            "--trace": self.trace,
        }
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise CommandError(f"{' and '.join(named)} exclude each other; use one of them")
        if not named:
            concurrency = 1
        elif self.burst and concurrency is None:
            raise CommandError(
                f"--burst starts the lanes of a closed loop and cannot be used with {named[0]}; "
                "remove one of them"
            )
        if self.request_rate is not None and not 0 < self.request_rate < float("inf"):
            raise CommandError(f"--request-rate must be above 0, not {self.request_rate:g}")
        requests = self.requests
        if requests is None and self.request_rate is not None:
            requests = _OPEN_LOOP_REQUESTS
        return OperatingPoint(
            concurrency,
            requests=requests,
            request_rate=self.request_rate,
            trace=None if self.trace is None else str(self.trace),
        )

    def workload(self) -> Workload:
        """Return the requested load.

        Raises:
            CommandError: An option has an invalid value.
        """
        try:
            shares = parse_shares(self.prompts)
        except ValueError as error:
            raise CommandError(f"--prompts {self.prompts}: {error}") from error
        if not 0 <= self.temperature < float("inf"):
            raise CommandError(f"--temperature must be 0 or more, not {self.temperature:g}")
        if not 0 < self.timeout_s < float("inf"):
            raise CommandError(f"--timeout must be above 0 seconds, not {self.timeout_s:g}")
        return Workload(
            shares,
            self.output_tokens,
            (self.point(),),
            output_spread=self._output_spread(),
            temperature=self.temperature,
            sampling=parse_sampling(self.sampling),
            natural_length=self.natural_length,
            shared_prefix=parse_shared_prefix(self.shared_prefix),
            goodput=parse_goodput(self.goodput),
            request_timeout_s=self.timeout_s,
        )

    def _output_spread(self) -> float:
        spread = self.output_spread
        if spread is not None and not 0 <= spread < 1:
            raise CommandError(
                f"--output-spread must be at least 0 and less than 1, not {spread:g}"
            )
        if self.natural_length:
            if spread:
                raise CommandError(
                    "--output-spread and --natural-length exclude each other; remove one of them"
                )
            return 0.0
        return DEFAULT_OUTPUT_SPREAD if spread is None else spread


def parse_sampling(pairs: Sequence[str]) -> tuple[tuple[str, float | int], ...]:
    """Parse sampling parameters such as `["top_p=0.9", "top_k=40"]`, with SGLang's names.

    Raises:
        CommandError: A name is unknown, or its value is not in SGLang's range.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - heavy
    from pydantic_core import PydanticCustomError  # noqa: PLC0415

    from search_spaces.study_file.values import SamplingParameters  # noqa: PLC0415

    parameters: dict[str, float | int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not equals or number != number or name in parameters:  # noqa: PLR0124 - not a number
            raise CommandError(
                f"--sampling {pair}: not a parameter; write NAME=NUMBER once per name, for example "
                "--sampling top_p=0.9"
            )
        parameters[name] = int(value) if value.lstrip("-").isdigit() else number
    try:
        TypeAdapter(SamplingParameters).validate_python(parameters)
    except (ValidationError, PydanticCustomError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        context = first.get("ctx", {}) if first else {}
        name = str(context.get("at") or " ".join(parameters))
        message = first["msg"] if first else str(error)
        raise CommandError(f"--sampling {name}: {message}") from error
    return tuple(sorted(parameters.items()))


def parse_shared_prefix(text: str | None) -> SharedPrefix | None:
    """Parse a shared prefix: `"512"` tokens, or `"512:4"` tokens and groups.

    Raises:
        CommandError: The text has another form.
    """
    if text is None:
        return None
    if (matched := _PREFIX.fullmatch(text)) is None:
        raise CommandError(
            f"--shared-prefix {text}: not a prefix; write TOKENS or TOKENS:GROUPS, for example 512 "
            "or 512:4"
        )
    tokens, groups = int(matched[1]), int(matched[2] or 1)
    if tokens > MOST_PREFIX_TOKENS or groups > MOST_PREFIX_GROUPS:
        raise CommandError(
            f"--shared-prefix {text}: at most {MOST_PREFIX_TOKENS} tokens and "
            f"{MOST_PREFIX_GROUPS} groups"
        )
    return SharedPrefix(tokens, groups)


def parse_goodput(text: str | None) -> Goodput | None:
    """Parse limits in milliseconds: `"ttft:200,tpot:50"`, as in `sglang.bench_serving --goodput`.

    Raises:
        CommandError: A limit is unknown, is given twice, or is not a number above 0.
    """
    if text is None:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = 0.0
        if name not in _LIMITS or name in limits or not 0 < limit < float("inf"):
            raise CommandError(
                f"--goodput {text}: not limits in milliseconds; write for example "
                f"ttft:200,tpot:50 with the names {', '.join(_LIMITS)}"
            )
        limits[name] = limit
    return Goodput(limits.get("ttft"), limits.get("tpot"), limits.get("e2e"))
