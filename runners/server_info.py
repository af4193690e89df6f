"""What a running server says about itself, as read from `/server_info` (0.5.9 to 0.5.23)."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import httpx

from results.records import Failure
from runners.base import RunnerError
from runners.plugin.protocol import STATUS
from runners.plugin.status import setting_in_force
from search_spaces.configuration import NO_SPECULATION, Speculation

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_ENDPOINTS = ("/server_info", "/get_server_info")  # the second is the older spelling
_GONE = frozenset({502, 503, 504})

READ_VERSIONS = ("0.5.9", "0.5.17", "0.5.23")
"""Versions whose source was read for field names, meanings and messages, oldest first."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a running server reports.

    Attributes:
        version: SGLang's version, or `"unknown"`.
        speculation: Resolved speculation.
        simulated: Whether the server is a simulation.
        time_scale: Simulated seconds per real second; 1.0 for a real server.
        raw: The whole `/server_info` body, or empty.
        is_sglang: Whether the server is SGLang, or simulates SGLang.
    """

    version: str
    speculation: Speculation
    simulated: bool
    time_scale: float
    raw: dict[str, Any]
    is_sglang: bool = True


UNKNOWN_SERVER = ServerFacts("unknown", Speculation(), False, 1.0, {}, is_sglang=False)  # noqa: FBT003
"""A server that answers but is not SGLang."""


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Certificates of this machine; reading them takes 25 ms, so once per process."""
    return httpx.create_ssl_context(trust_env=False)


def http_client(**options: Any) -> httpx.Client:  # noqa: ANN401 - the options of httpx.Client
    """Make an HTTP client that ignores the user's proxies: a proxy must not handle a local server.

    Args:
        options: Options of `httpx.Client`.
    """
    return httpx.Client(verify=_certificates(), trust_env=False, **options)


def read_server(
    base_url: str, *, timeout_s: float = 30.0, api_key: str | None = None
) -> ServerFacts:
    """Read and interpret `/server_info`; raises like `read_server_info`."""
    info = read_server_info(base_url, timeout_s=timeout_s, api_key=api_key)
    simulated, time_scale = simulated_of(info)
    return ServerFacts(
        version=str(info.get("version") or "unknown"),
        speculation=speculation_of(info),
        simulated=simulated,
        time_scale=time_scale,
        raw=info,
    )


def read_any_server(
    base_url: str, *, timeout_s: float = 30.0, api_key: str | None = None
) -> ServerFacts:
    """`read_server`, but `UNKNOWN_SERVER` for one that answers and is not SGLang."""
    try:
        return read_server(base_url, timeout_s=timeout_s, api_key=api_key)
    except RunnerError as error:
        if error.failure.kind != "not_sglang":
            raise
        return UNKNOWN_SERVER


def refuse_unready(base_url: str, *, timeout_s: float = 30.0, api_key: str | None = None) -> None:
    """Refuse a server that reports that it is starting, stopping or hung (`/health` 503).

    Any other answer counts as ready, because a proxy may not forward `/health`.

    Raises:
        RunnerError: The server is not ready, or does not answer.
    """
    response = _get(base_url, ("/health",), timeout_s=timeout_s, api_key=api_key)
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        message = (
            f"{base_url}: the server is not ready (/health answers HTTP 503); wait, or read the "
            "server's log"
        )
        raise _error("not_ready", "configuration", message)


def read_models(
    base_url: str, *, timeout_s: float = 30.0, api_key: str | None = None
) -> tuple[str, ...]:
    """Names of the served models, from OpenAI's `/v1/models`.

    Raises:
        RunnerError: No answer, the key is refused, or the answer does not list models.
    """
    response = _get(base_url, ("/v1/models",), timeout_s=timeout_s, api_key=api_key)
    _refuse_unserved(base_url, response)
    try:
        return tuple(str(model["id"]) for model in response.raise_for_status().json()["data"])
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        start = response.text[:120].replace("\n", " ")
        message = (
            f"{base_url} lists no models: /v1/models answered HTTP {response.status_code} {start!r}"
        )
        raise _error("no_models", "client", message) from error


def read_server_info(
    base_url: str, *, timeout_s: float = 30.0, api_key: str | None = None
) -> dict[str, Any]:
    """Read the raw body of `/server_info`.

    Args:
        base_url: `http://host:port`, with or without a trailing slash.
        timeout_s: Real seconds; a hung scheduler makes this endpoint hang too (0.5.23).
        api_key: Bearer token, if any.

    Raises:
        RunnerError: No answer, the key is refused, or the server is not SGLang.
    """
    return _info(base_url, _get(base_url, _ENDPOINTS, timeout_s=timeout_s, api_key=api_key))


def _get(
    base_url: str, paths: tuple[str, ...], *, timeout_s: float, api_key: str | None
) -> httpx.Response:
    """The first answer that is not HTTP 404, or the last one."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with http_client(headers=headers, timeout=timeout_s) as client:
            for path in paths:
                response = client.get(base_url.rstrip("/") + path)
                if response.status_code != httpx.codes.NOT_FOUND:
                    break
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise _error(
            "bad_url", "client", f"{base_url!r} is not an HTTP address: {error}"
        ) from error
    except httpx.TimeoutException as error:
        message = f"{base_url} did not answer {paths[0]} within {timeout_s:g} s"
        raise _error("server_hung", "configuration", message) from error
    except httpx.RequestError as error:
        raise _error("server_gone", "configuration", f"no server at {base_url}: {error}") from error
    return response


def _refuse_unserved(base_url: str, response: httpx.Response) -> None:
    if response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        message = f"{base_url} refused the API key (HTTP {response.status_code}); use the right key"
        raise _error("unauthorized", "client", message)
    if response.status_code in _GONE:
        message = f"{base_url} answers HTTP {response.status_code}; the server is not serving"
        raise _error("server_gone", "configuration", message)


def _info(base_url: str, response: httpx.Response) -> dict[str, Any]:
    _refuse_unserved(base_url, response)
    try:
        info = response.raise_for_status().json()
    except (httpx.HTTPStatusError, ValueError) as error:
        raise _not_sglang(base_url, response) from error
    if not isinstance(info, dict) or "model_path" not in info:
        raise _not_sglang(base_url, response)
    try:
        simulated_of(info)
    except (ValueError, TypeError) as error:
        raise _error("bad_time_scale", "client", f"{base_url}: {error}") from error
    return info


def speculation_of(server_info: Mapping[str, Any]) -> Speculation:
    """Speculation that a server runs, in canonical spelling.

    The scheduler's state (`internal_states`) has priority over the arguments at the top level,
    which do not change after a hot switch. The status of the tuner's plugin has priority over both,
    because it comes from the draft worker.
    """
    states = server_info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}

    def value(name: str) -> Any:  # noqa: ANN401 - JSON
        found = state.get(name)
        return found if found is not None else server_info.get(name)

    algorithm = value("speculative_algorithm")
    if not algorithm or str(algorithm).lower() == NO_SPECULATION:
        return Speculation()
    plugin = state.get(STATUS)
    hot = plugin.get("hot_switch") if isinstance(plugin, dict) else None
    if isinstance(hot, dict) and (setting := setting_in_force(hot)) is not None:
        topk = value("speculative_eagle_topk")
        return Speculation(
            str(algorithm).upper(), setting.num_steps, topk, setting.num_draft_tokens
        )
    return Speculation(
        algorithm=str(algorithm).upper(),
        num_steps=value("speculative_num_steps"),
        topk=value("speculative_eagle_topk"),
        num_draft_tokens=value("speculative_num_draft_tokens"),
    )


def running_limit_of(server_info: Mapping[str, Any]) -> int | None:
    """Largest number of running requests; `None` if the server does not report it.

    This is the sum of the schedulers' limits, which memory may reduce
    (`effective_max_running_requests_per_dp` of every internal state, 0.5.9 to 0.5.23), or else the
    argument at the top level.
    """
    states = server_info.get("internal_states")
    limits = [
        count
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict)
        and (count := _count(state.get("effective_max_running_requests_per_dp"))) is not None
    ]
    return sum(limits) or _count(server_info.get("max_running_requests"))


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def simulated_of(server_info: Mapping[str, Any]) -> tuple[bool, float]:
    """Whether the server is a simulation, and its simulated seconds per real second.

    Raises:
        ValueError: The time scale is not a finite number above 0.
    """
    simulated = server_info.get("simulated")
    if not simulated:
        return False, 1.0
    scale = simulated.get("time_scale", 1.0) if isinstance(simulated, dict) else 1.0
    if not 0 < float(scale) < math.inf:
        raise ValueError(f"a simulated server's time scale must be positive, not {scale!r}")
    return True, float(scale)


def _error(kind: str, fault: Literal["configuration", "client"], message: str) -> RunnerError:
    return RunnerError(Failure(kind=kind, phase="ready", fault=fault, message=message))


def _not_sglang(base_url: str, response: httpx.Response) -> RunnerError:
    start = response.text[:120].replace("\n", " ")
    return _error(
        "not_sglang",
        "client",
        f"{base_url} is not an SGLang server: /server_info answered HTTP "
        f"{response.status_code} {start!r}",
    )


def version_note(version: str) -> str | None:
    """Note on a version outside of the known range; `None` for a known version."""
    if is_between(version, READ_VERSIONS[0], READ_VERSIONS[-1]):
        return None
    return (
        f"SGLang {version}: version not known; figures may have other names and meanings than in "
        f"{', '.join(READ_VERSIONS)}"
    )


def is_between(version: str, oldest: str, newest: str) -> bool:
    """Whether a version is in a range, limits included. An unreadable version is not."""
    numbers = [_numbers(one) for one in (oldest, version, newest)]
    known = [one for one in numbers if one is not None]
    return len(known) == len(numbers) and known == sorted(known)


def _numbers(version: str) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else None
