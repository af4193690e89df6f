"""What a running server speaks, found out before anything of it is measured."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from runners.load.http.client import ClientSettings, LoadClient, load_error
from runners.load.http.openai import NO_USAGE, ChatEndpoint, CompletionsEndpoint, Dialect
from runners.load.http.stream import GenerateEndpoint
from runners.load.prompts.prompts import Prompt
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.window.in_flight import InFlightRequest
from runners.sglang.facts import read_any_server, read_models, read_server, refuse_unready
from runners.sglang.versions import version_note
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.base import RunnerError
    from runners.load.http.endpoint import Endpoint
    from runners.load.prompts.rendering import Renderer
    from runners.sglang.facts import ServerFacts

EndpointName = Literal["generate", "completions", "chat"]

# Richest first; what a server refuses is left out. OpenAI's own servers know neither extension.
_DIALECTS = (
    Dialect(),
    Dialect(continuous_usage=False),
    Dialect(continuous_usage=False, ignore_eos=False),
)
_REFUSED = ("HTTP 400", "HTTP 422")
# Long enough to fill a page of the prefix cache (64 tokens where pages are large).
_PROMPT = Prompt("probe", "In one sentence, what is a benchmark? " + "Say why, and for whom. " * 40)
_OTHER = Prompt("probe/2", "Why do cats purr?")
_FLUSH_TIMEOUT_S = 15.0
_PROBE_TOKENS = 16
_PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """A running server, and how it is to be spoken to.

    Attributes:
        facts: What it says of itself.
        endpoint: What is loaded.
        speculation: What its acceptance is checked against; none where it does not tell.
        unchecked: What cannot be checked or is not known of it, in words.
        renderer: What marks prompts with the chat template that the server puts around them.
    """

    facts: ServerFacts
    endpoint: Endpoint
    speculation: Speculation
    unchecked: tuple[str, ...] = ()
    renderer: Renderer = field(default_factory=IdentityRenderer)


class ServerTemplateRenderer(IdentityRenderer):
    """Sends prompts as they are to a server that puts a chat template around them."""

    def __init__(self, template_tokens: int, turn_tokens: int) -> None:
        """Remembers how many tokens the template adds.

        Args:
            template_tokens: Tokens before every prompt.
            turn_tokens: Tokens that it adds to each turn at most.
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
    """Asks a server what it is and, for the OpenAI endpoints, what it understands.

    An SGLang server's prefix cache is emptied and a few short requests are sent to find that out.

    Args:
        url: `http://host:port`, without `/v1`.
        endpoint: What is to be loaded.
        model: The model's name at the server; the first of `/v1/models` if not given.
        api_key: Sent as bearer token where given.
        natural_length: Whether answers may end by themselves: then `ignore_eos` is not needed.
        request_timeout_s: Real seconds for each of the requests.

    Raises:
        RunnerError: Nobody answers, or the server is not ready or cannot be measured this way.
    """
    if endpoint == "generate":
        facts = read_server(url, api_key=api_key)
        refuse_unready(url, api_key=api_key)
        return Target(facts, GenerateEndpoint(), facts.speculation, _notes(facts))
    facts = read_any_server(url, api_key=api_key)
    if facts.is_sglang:
        refuse_unready(url, api_key=api_key)
    if model is None:
        models = read_models(url, api_key=api_key)
        if not models:
            raise load_error("no_models", "client", f"{url} serves no model: name one")
        model = models[0]
    kind = ChatEndpoint if endpoint == "chat" else CompletionsEndpoint
    dialects = (Dialect(is_sglang=True),) if facts.is_sglang else _DIALECTS
    refusals: list[str] = []
    for dialect in dialects:
        candidate = kind(model, dialect)
        flight, *others = _ask(url, candidate, api_key, request_timeout_s)
        if flight.error is None:
            if not (dialect.ignore_eos or natural_length):
                raise _no_fixed_length(url, refusals)
            return _target(facts, candidate, dialect, (flight, *others))
        refusals.append(flight.error)
        if not flight.error.startswith(_REFUSED):
            break
    raise _unusable(url, candidate, refusals[-1])


def _ask(
    url: str, endpoint: Endpoint, api_key: str | None, timeout_s: float
) -> tuple[InFlightRequest, ...]:
    """Sends two prompts that share nothing, and the first again, to an emptied cache."""
    point = OperatingPoint(1)
    workload = Workload((("chat", 1.0),), _PROBE_TOKENS, (point,))
    flights = [
        InFlightRequest(p.id, endpoint.body(p, workload)) for p in (_PROMPT, _OTHER, _PROMPT)
    ]

    async def ask() -> None:
        async with LoadClient(ClientSettings(url, 1, timeout_s, api_key, endpoint)) as client:
            await client.flush_cache(timeout_s=_FLUSH_TIMEOUT_S)
            for flight in flights:
                await client.generate(flight)

    asyncio.run(ask())
    return tuple(flights)


def _target(
    facts: ServerFacts, endpoint: Endpoint, dialect: Dialect, flights: tuple[InFlightRequest, ...]
) -> Target:
    flight, other, _ = flights
    answer = flight.answer
    # SGLang says nothing where nothing was cached (0.5.23); the repeated prompt shows which it is.
    cached = [f.answer.cached_tokens for f in flights if f.answer is not None]
    unchecked = list(_notes(facts))
    speculation = facts.speculation
    if not facts.is_sglang:
        unchecked.append(
            "not an SGLang server: whether it speculates is not known, its prefix cache is not "
            "emptied before the window, and nothing proves that it is idle"
        )
    elif speculation.enabled and not (answer and answer.verify_calls):
        speculation = Speculation()
        unchecked.append(
            f"this endpoint does not tell of acceptance, though the server runs "
            f"{facts.speculation.algorithm}: --endpoint generate does"
        )
    if all(tokens is None for tokens in cached):
        unchecked.append(
            "the server does not tell of cached prompt tokens: whether the prefix cache helped "
            "is not known"
        )
    if flight.evenly:
        unchecked.append(
            "the server counts an answer's tokens only at its end: within an answer they are "
            "spread evenly over its chunks"
        )
    if not dialect.ignore_eos:
        unchecked.append("answers may end early: the server does not know ignore_eos")
    # What two prompts that share nothing have in common is the template's head.
    head = (other.answer and other.answer.cached_tokens) or 0
    renderer = IdentityRenderer()
    if endpoint.name == "chat":
        # All tokens of a short prompt: at least those of the template around it.
        whole = (other.answer and other.answer.prompt_tokens) or 0
        renderer = ServerTemplateRenderer(head, whole)
    return Target(facts, endpoint, speculation, tuple(unchecked), renderer)


def _notes(facts: ServerFacts) -> tuple[str, ...]:
    """What its version leaves open; a simulated server plays one that is known."""
    note = version_note(facts.version) if facts.is_sglang and not facts.simulated else None
    return () if note is None else (note,)


def _no_fixed_length(url: str, refusals: list[str]) -> RunnerError:
    return load_error(
        "no_fixed_length",
        "client",
        f"{url} cannot be asked for answers of a fixed length ({refusals[-1]}): "
        "let them end by themselves (--natural-length)",
    )


def _unusable(url: str, endpoint: Endpoint, error: str) -> RunnerError:
    where = f"{url}{endpoint.path}"
    if error.startswith(("HTTP 401", "HTTP 403")):
        return load_error("unauthorized", "client", f"{where} refused the API key: {error}")
    if error.startswith(("HTTP 404", "HTTP 405")):
        message = f"{where} is not served, or does not know the model: {error}"
        return load_error("no_endpoint", "client", message)
    kind = "no_usage" if error == NO_USAGE else "request_failed"
    return load_error(kind, "client", f"{where} cannot be measured: {error}")
