"""The few calls that a session makes itself: health, a first generation, switching the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import httpx

from runners.plugin.protocol import DRAFT_TOKENS_ARGUMENT, STEPS_ARGUMENT, TOKEN_ARGUMENT

if TYPE_CHECKING:
    from types import TracebackType

    from search_spaces.configuration import Setting

_CANARY_TOKENS = 8
_CANARY_TEXT = "Readiness check {mark}: count from one to eight."

HEALTH_TIMEOUT_S = 25.0
"""Longer than SGLang's own 20 s for a scheduler that does not answer (0.5.23)."""


class ServerClient:
    """A blocking client of one server.

    Attributes:
        base_url: Its address.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        """Connects to nothing yet.

        Raises:
            ValueError: The address is none, or the key cannot be sent.
        """
        self.base_url = base_url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            # trust_env off: a proxy of the user's environment must not stand before a local server.
            self._http = httpx.Client(
                base_url=base_url,
                headers=headers,
                trust_env=False,
                timeout=HEALTH_TIMEOUT_S,
                # Each call on a connection of its own: between two calls lies a measurement, and a
                # kept connection that the server closes just then (uvicorn: after 5 s) looks like
                # a crash.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"{base_url!r} is not an HTTP address: {error}") from error
        except UnicodeEncodeError as error:
            raise ValueError(f"the API key is not plain ASCII: {error}") from error

    def healthy(self, timeout_s: float) -> bool:
        """Whether `/health` answers 200: a proxy's word, so `generates` must follow."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def generates(self, mark: str, timeout_s: float) -> str | None:
        """Sends one real request with a prompt of this launch; `None` if the answer is whole.

        Returns:
            What was wrong with the answer.
        """
        body = {
            "text": _CANARY_TEXT.format(mark=mark),
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": _CANARY_TOKENS,
                "ignore_eos": True,
            },
        }
        try:
            response = self._http.post("/generate", json=body, timeout=timeout_s)
            if response.status_code != httpx.codes.OK:
                return f"/generate answers HTTP {response.status_code}: {response.text[:200]}"
            tokens = response.json()["meta_info"]["completion_tokens"]
        except httpx.HTTPError as error:
            return f"/generate: {type(error).__name__} {error}"
        except (ValueError, KeyError, TypeError) as error:
            return f"/generate gave no SGLang answer ({type(error).__name__} {error})"
        if tokens != _CANARY_TOKENS:
            return f"/generate gave {tokens} tokens where {_CANARY_TOKENS} were asked for"
        return None

    def model_names(self) -> tuple[str, ...]:
        """The names under which `/v1/models` lists the model; empty if it does not answer."""
        try:
            listed: list[dict[str, Any]] = self._http.get("/v1/models").json()["data"]
            return tuple(str(model["id"]) for model in listed)
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ()

    def switch(self, setting: Setting, token: int) -> str | None:
        """Asks for another setting; `None` if the server took it, else what it said.

        Args:
            setting: The setting; it has steps.
            token: That of the server's launch (`plugin_protocol.token_of`).
        """
        arguments = {
            STEPS_ARGUMENT: setting.num_steps,
            DRAFT_TOKENS_ARGUMENT: setting.num_draft_tokens,
            TOKEN_ARGUMENT: token,
        }
        body = {"server_args": arguments}
        try:
            response = self._http.post("/set_internal_state", json=body)
        except httpx.HTTPError as error:
            return f"{type(error).__name__} {error}"
        if response.status_code != httpx.codes.OK:
            return f"HTTP {response.status_code}: {response.text[:200]}"
        return None  # it says `[true]` too where nothing was done: only the status is proof

    def close(self) -> None:
        """Closes the connections. Idempotent."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
