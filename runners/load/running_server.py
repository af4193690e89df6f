"""Measure a server that is already running: find out what the server supports, then load it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from runners.load.generator import LoadGenerator
from runners.load.http.client import ClientSettings, LoadClient, load_error
from runners.load.http.generate import GenerateEndpoint
from runners.load.http.in_flight import InFlightRequest
from runners.load.http.openai import NO_USAGE, ChatEndpoint, CompletionsEndpoint, Dialect
from runners.load.prompts.prompts import BuiltInPrompts, Prompt
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.window.watches import ServerIdentityWatch
from runners.server_info import (
    read_any_server,
    read_models,
    read_server,
    refuse_unready,
    version_note,
)
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import Measurement
    from runners.base import RunnerError
    from runners.load.http.endpoint import Endpoint
    from runners.load.prompts.prompts import PromptSource
    from runners.load.prompts.rendering import Renderer
    from runners.server_info import ServerFacts


EndpointName = Literal["generate", "completions", "chat"]

# Most features first. OpenAI's own servers support neither extension.
_DIALECTS = (
    Dialect(),
    Dialect(continuous_usage=False),
    Dialect(continuous_usage=False, ignore_eos=False),
)
_REFUSED = ("HTTP 400", "HTTP 422")
# Long enough to fill a page of the prefix cache (64 tokens for large pages).
_PROMPT = Prompt("probe", "In one sentence, what is a benchmark? " + "Say why, and for whom. " * 40)
_OTHER = Prompt("probe/2", "Why do cats purr?")
_FLUSH_TIMEOUT_S = 15.0
_PROBE_TOKENS = 16
_PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """A running server and the way to measure it.

    Attributes:
        facts: The server's own description.
        endpoint: Endpoint that receives the load.
        speculation: Setting that the acceptance is checked against; none if the endpoint does not
            report acceptance.
        unchecked: Sentences about facts that are unknown or cannot be checked.
        renderer: Adds the size of the server's chat template to prompts.
    """

    facts: ServerFacts
    endpoint: Endpoint
    speculation: Speculation
    unchecked: tuple[str, ...] = ()
    renderer: Renderer = field(default_factory=IdentityRenderer)


class ServerTemplateRenderer(IdentityRenderer):
    """Leave prompts unchanged and record the size of the server's own chat template."""

    def __init__(self, template_tokens: int, turn_tokens: int) -> None:
        """Set the size of the template.

        Args:
            template_tokens: Tokens before every prompt.
            turn_tokens: Largest number of tokens that the template adds to each turn.
        """
        self._template_tokens = template_tokens
        self._turn_tokens = turn_tokens

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`."""
        return tuple(
            replace(prompt, template_tokens=self._template_tokens, turn_tokens=self._turn_tokens)
            for prompt in super().render(prompts)
        )


def find_target(
    url: str,
    endpoint: EndpointName = "generate",
    *,
    model: str | None = None,
    api_key: str | None = None,
    natural_length: bool = False,
    request_timeout_s: float = _PROBE_TIMEOUT_S,
) -> Target:
    """Identify a server and, for OpenAI endpoints, find out which parameters it accepts.

    For OpenAI endpoints the probe empties an SGLang server's prefix cache and sends a few short
    requests.

    Args:
        url: `http://host:port`, without `/v1`.
        endpoint: Endpoint that will receive the load.
        model: The model's name at the server; defaults to the first of `/v1/models`.
        api_key: Bearer token.
        natural_length: Whether the model may end its answers, so that `ignore_eos` is not needed.
        request_timeout_s: Limit for each request in real seconds.

    Raises:
        RunnerError: No server answers, or the server is not ready or cannot be measured this way.
    """
    if endpoint == "generate":
        facts = read_server(url, api_key=api_key)
        refuse_unready(url, api_key=api_key)
        return Target(facts, GenerateEndpoint(), facts.speculation, _version_notes(facts))
    facts = read_any_server(url, api_key=api_key)
    if facts.is_sglang:
        refuse_unready(url, api_key=api_key)
    if model is None:
        models = read_models(url, api_key=api_key)
        if not models:
            raise load_error("no_models", "client", f"{url} lists no model; name the model")
        model = models[0]
    kind = ChatEndpoint if endpoint == "chat" else CompletionsEndpoint
    dialects = (Dialect(is_sglang=True),) if facts.is_sglang else _DIALECTS
    refusal = ""
    for dialect in dialects:
        candidate = kind(model, dialect)
        flights = _send_probes(url, candidate, api_key, request_timeout_s)
        error = flights[0].error
        if error is None:
            if not (dialect.ignore_eos or natural_length):
                message = (
                    f"{url} does not support answers of a fixed length ({refusal}): use "
                    "--natural-length"
                )
                raise load_error("no_fixed_length", "client", message)
            return _target(facts, candidate, dialect, flights)
        refusal = error
        if not error.startswith(_REFUSED):
            break
    raise _unusable(url, candidate, refusal)


def _send_probes(
    url: str, endpoint: Endpoint, api_key: str | None, timeout_s: float
) -> tuple[InFlightRequest, ...]:
    """Send two prompts with different beginnings, then the first prompt again."""
    workload = Workload((("chat", 1.0),), _PROBE_TOKENS, (OperatingPoint(1),))
    prompts = (_PROMPT, _OTHER, _PROMPT)
    flights = [InFlightRequest(p.id, endpoint.body(p, workload)) for p in prompts]

    async def send() -> None:
        async with LoadClient(ClientSettings(url, 1, timeout_s, api_key, endpoint)) as client:
            await client.flush_cache(timeout_s=_FLUSH_TIMEOUT_S)
            for flight in flights:
                await client.generate(flight)

    asyncio.run(send())
    return tuple(flights)


def _target(
    facts: ServerFacts, endpoint: Endpoint, dialect: Dialect, flights: tuple[InFlightRequest, ...]
) -> Target:
    flight, other, _ = flights
    unchecked = list(_version_notes(facts))
    speculation = facts.speculation
    if not facts.is_sglang:
        unchecked.append(
            "not an SGLang server: speculation is unknown, the prefix cache is not emptied before "
            "the window, and the server may not be idle"
        )
    elif speculation.enabled and not (flight.answer and flight.answer.verify_calls):
        speculation = Speculation()
        unchecked.append(
            f"this endpoint does not report acceptance, although the server runs "
            f"{facts.speculation.algorithm}; use --endpoint generate"
        )
    # SGLang reports nothing if no token was cached (0.5.23), so the repeated prompt decides.
    if all(f.answer is None or f.answer.cached_tokens is None for f in flights):
        unchecked.append(
            "the server does not report cached prompt tokens: the effect of the prefix cache is "
            "unknown"
        )
    if flight.evenly:
        unchecked.append(
            "the server counts tokens only at the end of an answer: they are spread evenly over "
            "its chunks"
        )
    if not dialect.ignore_eos:
        unchecked.append("answers may end early: the server does not support ignore_eos")
    renderer = IdentityRenderer()
    if endpoint.name == "chat":
        # The two prompts share only the template's beginning. The length of the short prompt is an
        # upper bound of the template's whole size.
        head = (other.answer and other.answer.cached_tokens) or 0
        whole = (other.answer and other.answer.prompt_tokens) or 0
        renderer = ServerTemplateRenderer(head, whole)
    return Target(facts, endpoint, speculation, tuple(unchecked), renderer)


def _version_notes(facts: ServerFacts) -> tuple[str, ...]:
    """Note an SGLang version whose fields were not checked; simulated versions are known."""
    note = version_note(facts.version) if facts.is_sglang and not facts.simulated else None
    return () if note is None else (note,)


def _unusable(url: str, endpoint: Endpoint, error: str) -> RunnerError:
    where = f"{url}{endpoint.path}"
    if error.startswith(("HTTP 401", "HTTP 403")):
        return load_error("unauthorized", "client", f"{where} refused the API key: {error}")
    if error.startswith(("HTTP 404", "HTTP 405")):
        message = f"{where} does not exist, or the model is unknown: {error}"
        return load_error("no_endpoint", "client", message)
    kind = "no_usage" if error == NO_USAGE else "request_failed"
    return load_error(kind, "client", f"{where} cannot be measured: {error}")


class LoadOptions(TypedDict, total=False):
    """Options of `LoadGenerator`; its defaults apply to missing keys."""

    seed: int
    request_timeout_s: float
    stall_timeout_s: float
    processes: int | None
    burst: bool
    whole_run: bool


class BenchOptions(LoadOptions, total=False):
    """Options of `bench`; see `bench_windows`."""

    target: Target | None
    prompts: PromptSource | None
    renderer: Renderer | None
    api_key: str | None


def bench(
    url: str, workload: Workload, point: OperatingPoint, **options: Unpack[BenchOptions]
) -> Measurement:
    """Measure one window; see `bench_windows`."""
    return next(bench_windows(url, workload, point, **options))


def bench_windows(
    url: str,
    workload: Workload,
    point: OperatingPoint,
    *,
    target: Target | None = None,
    prompts: PromptSource | None = None,
    renderer: Renderer | None = None,
    api_key: str | None = None,
    **options: Unpack[LoadOptions],
) -> Iterator[Measurement]:
    """Measure a real or simulated server; each `next` measures one window.

    All windows send the same prompts and request the same answer lengths. The prefix cache of an
    SGLang server is emptied before each window. No other client may use the server meanwhile.

    Args:
        url: `http://host:port`.
        workload: Requested load.
        point: Operating point.
        target: Result of `find_target`; defaults to SGLang's `/generate`.
        prompts: Source of the prompts; defaults to the workload's built-in sets.
        renderer: Applies the chat template; defaults to the target's.
        api_key: Bearer token.
        **options: See `LoadOptions`.

    Raises:
        RunnerError: No server answers, or the server died, hung or refused the load.
        NotEnoughPromptsError: The prompt source is too small for the point.
    """
    target = target or find_target(url, api_key=api_key)
    facts = target.facts
    watch = ServerIdentityWatch(url, launched=facts.raw, api_key=api_key)
    generator = LoadGenerator(
        url,
        workload,
        prompts or BuiltInPrompts(workload.prompts),
        renderer or target.renderer,
        time_scale=facts.time_scale,
        simulated=facts.simulated,
        api_key=api_key,
        endpoint=target.endpoint,
        watches=(watch,) if facts.is_sglang else (),
        **options,
    )
    while True:
        yield generator.measure(point, speculation=target.speculation, server_info=facts.raw)
