"""API keys, by the rules of SGLang 0.5.23 (`srt/utils/auth.py`)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from runners.simulated_server.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = ("/health", "/ready", "/metrics")

ADMIN_PATHS = frozenset(
    {
        "/abort_request",
        "/configure_logging",
        "/continue_generation",
        "/flush_cache",
        "/freeze_gc",
        "/pause_generation",
        "/set_internal_state",
        "/slow_down",
        "/start_profile",
        "/stop_profile",
    }
)
"""Where the admin's key counts, if there is one: SGLang's `ADMIN_OPTIONAL`."""


class Authorization:
    """Refuses what comes without the right key; health, readiness and metrics stay open.

    Args:
        application: What is behind it.
        api_key: `--api-key`.
        admin_api_key: `--admin-api-key`.
    """

    def __init__(
        self, application: ASGIApp, api_key: str | None, admin_api_key: str | None
    ) -> None:
        self._application = application
        self._api_key = api_key
        self._admin_api_key = admin_api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or refuses it with 401."""
        if scope["type"] == "http" and not self._allowed(scope):
            await ApiError({"error": "Unauthorized"}, 401).response()(scope, receive, send)
            return
        await self._application(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["method"] == "OPTIONS" or path.startswith(_OPEN):
            return True
        admin = path in ADMIN_PATHS and self._admin_api_key is not None
        key = self._admin_api_key if admin else self._api_key
        if key is None:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, token = given.partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token, key)
