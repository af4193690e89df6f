"""What `tuner bench` is asked to do: from its options to a workload and an operating point."""

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
"""Where the API key is looked for when none is given."""

_OPEN_LOOP_REQUESTS = 64
_LIMITS = ("ttft", "tpot", "e2e")
_PREFIX = re.compile(r"([1-9][0-9]{0,11})(?::([1-9][0-9]{0,11}))?")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options, as the command line gave them; `None` where it gave none.

    Attributes:
        url: `http://host:port`, perhaps with OpenAI's `/v1`.
        endpoint: What is loaded.
        model: The model's name at the server.
        concurrency: Requests in flight.
        request_rate: Requests per second.
        trace: File of arrival times.
        requests: Requests of the window.
        burst: Whether all lanes start at once, with whole answers.
        whole_run: Whether the figures cover the run from the first send to the last token.
        repeat: Windows.
        output_tokens: Mean tokens per answer.
        output_spread: Largest deviation of an answer's length, as a share of the mean.
        natural_length: Whether answers end where the model ends them.
        temperature: Sampling temperature.
        sampling: Further sampling parameters, each as `name=value`.
        prompts: Prompt sources and shares.
        shared_prefix: `tokens` or `tokens:groups`.
        goodput: `ttft:200,tpot:50,e2e:9000`, in milliseconds.
        api_key: Bearer token.
        python: The Python of the environment that knows the model.
        seed: Selects prompts, lengths of answers and arrivals.
        processes: Client processes.
        timeout_s: Real seconds for one request.
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
        """The server's address, without what its endpoints' paths begin with."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def window_kind(self) -> Literal["steady", "burst", "whole_run"]:
        """The part of the load that the figures cover."""
        if self.whole_run:
            return "whole_run"
        return "burst" if self.burst else "steady"

    def key(self) -> str | None:
        """The API key: the one given, else that of the environment.

        Raises:
            CommandError: It holds what no HTTP header can.
        """
        found = {"--api-key": self.api_key} | {name: os.environ.get(name) for name in KEY_VARIABLES}
        for name, key in found.items():
            if not key:
                continue
            if not (key.isascii() and key.isprintable()):
                raise CommandError(
                    f"{name} holds a line break or a letter that no HTTP header can carry"
                )
            return key
        return None

    def point(self) -> OperatingPoint:
        """The operating point.

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
            raise CommandError(f"{' and '.join(named)} exclude each other: give one of them")
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
        """What is sent.

        Raises:
            CommandError: An option's value cannot be understood.
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
                    "--output-spread has no effect where the model ends its answers; remove it or "
                    "--natural-length"
                )
            return 0.0
        return DEFAULT_OUTPUT_SPREAD if spread is None else spread


def parse_sampling(pairs: Sequence[str]) -> tuple[tuple[str, float | int], ...]:
    """`["top_p=0.9", "top_k=40"]` as a workload has it; names as SGLang calls them.

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
            raise CommandError(f"--sampling {pair}: write each once, like --sampling top_p=0.9")
        parameters[name] = int(value) if value.lstrip("-").isdigit() else number
    try:
        TypeAdapter(SamplingParameters).validate_python(parameters)
    except (ValidationError, PydanticCustomError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        context = first.get("ctx", {}) if first else {}
        name = str(context.get("at") or " ".join(parameters))
        what = first["msg"] if first else str(error)
        raise CommandError(f"--sampling {name}: {what}") from error
    return tuple(sorted(parameters.items()))


def parse_shared_prefix(text: str | None) -> SharedPrefix | None:
    """`"512"` or `"512:4"`.

    Raises:
        CommandError: It is neither.
    """
    if text is None:
        return None
    if (matched := _PREFIX.fullmatch(text)) is None:
        raise CommandError(
            f"--shared-prefix {text}: write the tokens, and the groups where there are several: "
            "512 or 512:4"
        )
    tokens, groups = int(matched[1]), int(matched[2] or 1)
    if tokens > MOST_PREFIX_TOKENS or groups > MOST_PREFIX_GROUPS:
        raise CommandError(
            f"--shared-prefix {text}: at most {MOST_PREFIX_TOKENS} tokens and "
            f"{MOST_PREFIX_GROUPS} groups"
        )
    return SharedPrefix(tokens, groups)


def parse_goodput(text: str | None) -> Goodput | None:
    """`"ttft:200,tpot:50"`, in milliseconds, as `sglang.bench_serving --goodput` has it.

    Raises:
        CommandError: A limit is unknown, stands twice, or is no number above 0.
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
                f"--goodput {text}: write limits in milliseconds, like ttft:200,tpot:50; "
                f"the names are {', '.join(_LIMITS)}"
            )
        limits[name] = limit
    return Goodput(limits.get("ttft"), limits.get("tpot"), limits.get("e2e"))
