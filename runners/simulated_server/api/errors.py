"""JSON responses, and refusals in the shapes that SGLang 0.5.23 gives them.

Three shapes, by where SGLang finds the fault: its native endpoints (`_create_error_response`), its
OpenAI endpoints (`ErrorResponse`), and FastAPI's check of the body before either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

if TYPE_CHECKING:
    from pydantic import ValidationError
    from starlette.types import Scope

_SOURCE = "/usr/lib/python3/dist-packages/sglang/srt/entrypoints/http_server.py"
_PLACES = {
    "/set_internal_state": (897, "set_internal_state"),
    "/generate": (928, "generate_request"),
    "/flush_cache": (1025, "flush_cache"),
    "/abort_request": (1721, "abort_request"),
    "/v1/completions": (1860, "openai_v1_completions"),
    "/v1/chat/completions": (1870, "openai_v1_chat_completions"),
}
"""Where SGLang 0.5.23 says that a body was refused."""


def json_response(content: object, status: int = 200) -> Response:
    """A response whose body is JSON."""
    return Response(orjson.dumps(content), status, media_type="application/json")


class ApiError(Exception):
    """The request is refused.

    Attributes:
        status: The HTTP status.
        body: What says why; text is sent as text.
    """

    def __init__(self, body: dict[str, Any] | str, status: int = 400) -> None:
        super().__init__(str(body))
        self.body = body
        self.status = status

    def response(self) -> Response:
        """The refusal as an HTTP response."""
        if isinstance(self.body, str):
            return Response(self.body, self.status, media_type="text/plain")
        return json_response(self.body, self.status)


def native_error(message: str, status: int = 400) -> ApiError:
    """A refusal of `/generate` and its like."""
    return ApiError({"error": {"message": message}}, status)


def openai_error(message: str, kind: str = "BadRequestError", status: int = 400) -> ApiError:
    """A refusal of an OpenAI endpoint."""
    return ApiError(openai_body(message, kind, status), status)


def openai_body(message: str, kind: str, status: int) -> dict[str, Any]:
    """SGLang's `ErrorResponse`."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def as_openai(error: ApiError) -> ApiError:
    """A native refusal in the shape of the OpenAI endpoints."""
    body = error.body
    message = body["error"] if isinstance(body, dict) else body
    if isinstance(message, dict):
        message = message["message"]
    return openai_error(str(message), status=error.status)


def bad_json(scope: Scope, error: orjson.JSONDecodeError) -> ApiError:
    """The body is not JSON."""
    fault = {
        "type": "json_invalid",
        "loc": ("body", error.pos),
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": error.msg.split(":")[0]},
    }
    return validation_error(scope, [fault])


def bad_body(scope: Scope, error: ValidationError) -> ApiError:
    """The body is JSON, but not of the right shape."""
    faults = []
    for found in error.errors(include_url=False):
        fault: dict[str, Any] = dict(found)
        fault["loc"] = ("body", *found["loc"])
        faults.append(fault)
    return validation_error(scope, faults)


def missing_body(scope: Scope) -> ApiError:
    """There is no body at all."""
    fault = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
    return validation_error(scope, [fault])


def not_json_type() -> ApiError:
    """The content type is not `application/json`, which the OpenAI endpoints ask for."""
    fault = {
        "loc": ["header", "content-type"],
        "msg": "Unsupported Media Type: Only 'application/json' is allowed",
        "type": "value_error",
    }
    return openai_error(f"1 validation error:\n  {fault} [{fault}]", "Bad Request")


def validation_error(scope: Scope, faults: list[dict[str, Any]]) -> ApiError:
    """FastAPI's account of what is wrong, with the place in SGLang's source that it names."""
    path, count = scope["path"], len(faults)
    head = f"{count} validation error{'s' if count > 1 else ''}:"
    lines = "".join(f"\n  {fault}" for fault in faults)
    line, function = _PLACES.get(path, (0, "endpoint"))
    where = f'  File "{_SOURCE}", line {line}, in {function}\n    {scope["method"]} {path}'
    return openai_error(f"{head}{lines}\n\n{where} {faults}", "Bad Request")
