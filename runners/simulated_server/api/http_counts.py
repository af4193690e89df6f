"""Counts HTTP requests and responses for `/metrics`, as SGLang's middleware does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.routing import Match

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send


class HttpCounts:
    """The counts.

    Attributes:
        requests: By endpoint and method.
        responses: By endpoint, method and status.
        active: Requests that are being served, by endpoint and method.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, int]] = Counter()
        self.active: Counter[tuple[str, str]] = Counter()


class CountHttp:
    """Counts what passes. A response counts when it begins.

    Args:
        application: What is behind it.
        counts: Where it is counted.
    """

    def __init__(self, application: Starlette, counts: HttpCounts) -> None:
        self._application = application
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        counts, method = self._counts, scope["method"]
        endpoint = self._endpoint(scope)
        counts.requests[endpoint, method] += 1
        counts.active[endpoint, method] += 1

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                counts.responses[endpoint, method, message["status"]] += 1
            await send(message)

        try:
            await self._application(scope, receive, counted)
        finally:
            counts.active[endpoint, method] -= 1

    def _endpoint(self, scope: Scope) -> str:
        for route in self._application.routes:
            match, _ = route.matches(scope)
            if match == Match.FULL:
                return str(getattr(route, "path", scope["path"]))
        return str(scope["path"])
