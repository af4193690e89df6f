"""HTTP calls of a session outside a window: health, first generation, hot switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import httpx

from runners.plugin.protocol import DRAFT_TOKENS_ARGUMENT, STEPS_ARGUMENT, TOKEN_ARGUMENT
from runners.server_info import http_client

if TYPE_CHECKING:
    from types import TracebackType

    from search_spaces.configuration import Setting

_CANARY_TOKENS = 8
_CANARY_TEXT = "Readiness check {mark}: count from one to eight."

HEALTH_TIMEOUT_S = 25.0
"""Longer than SGLang's own 20 s for a scheduler that does not answer (0.5.23)."""


class ServerClient:
    """Blocking client of one server.

    Attributes:
        base_url: Address of the server.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        """Make a client without connecting.

        Raises:
            ValueError: The address is not valid, or the key cannot be sent.
        """
        self.base_url = base_url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = http_client(
                base_url=base_url,
                headers=headers,
                timeout=HEALTH_TIMEOUT_S,
                # One connection per call: uvicorn closes an idle connection after 5 s, and a call
                # on that connection would look like a crash.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"{base_url!r} is not an HTTP address: {error}") from error
        except UnicodeEncodeError as error:
            raise ValueError(f"the API key is not plain ASCII: {error}") from error

    def healthy(self, timeout_s: float) -> bool:
        """Whether `/health` answers 200. A proxy may answer, so `generates` must follow."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def generates(self, mark: str, timeout_s: float) -> str | None:
        """Send one real request with a prompt of this launch.

        Returns:
            The fault of the answer; `None` if the answer is complete.
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
            return f"/generate gave an answer that is not SGLang's ({type(error).__name__} {error})"
        if tokens != _CANARY_TOKENS:
            return f"/generate gave {tokens} tokens instead of {_CANARY_TOKENS}"
        return None

    def model_names(self) -> tuple[str, ...]:
        """Model names of `/v1/models`; empty without an answer."""
        try:
            listed: list[dict[str, Any]] = self._http.get("/v1/models").json()["data"]
            return tuple(str(model["id"]) for model in listed)
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ()

    def switch(self, setting: Setting, token: int) -> str | None:
        """Request another setting; return the server's refusal, or `None`.

        Args:
            setting: New setting; its steps are not `None`.
            token: Token of the launch (`runners.plugin.protocol.token_of`).
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
        return None  # `[true]` is no proof of a switch; the status is

    def close(self) -> None:
        """Close the connections. Idempotent."""
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
