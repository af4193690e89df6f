"""JSON responses, and errors in the formats of SGLang 0.5.23.

SGLang has three formats: native endpoints (`_create_error_response`), OpenAI endpoints
(`ErrorResponse`), and FastAPI's validation of the body.
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
"""Lines and functions of SGLang 0.5.23 that its validation errors name."""


def json_response(content: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(content), status, media_type="application/json")


class ApiError(Exception):
    """A refused request.

    Attributes:
        body: Body of the response; a string is sent as plain text.
    """

    def __init__(self, body: dict[str, Any] | str, status: int = 400) -> None:
        super().__init__(str(body))
        self.body = body
        self.status = status

    def response(self) -> Response:
        if isinstance(self.body, str):
            return Response(self.body, self.status, media_type="text/plain")
        return json_response(self.body, self.status)


def native_error(message: str, status: int = 400) -> ApiError:
    """Return an error of a native endpoint, such as `/generate`."""
    return ApiError({"error": {"message": message}}, status)


def openai_error(message: str, kind: str = "BadRequestError", status: int = 400) -> ApiError:
    """Return an error of an OpenAI endpoint: SGLang's `ErrorResponse`."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return ApiError(body, status)


def as_openai(error: ApiError) -> ApiError:
    """Return a native error in the format of the OpenAI endpoints."""
    body = error.body
    message = body["error"] if isinstance(body, dict) else body
    if isinstance(message, dict):
        message = message["message"]
    return openai_error(str(message), status=error.status)


def bad_json(scope: Scope, error: orjson.JSONDecodeError) -> ApiError:
    """Return the error of a body that is not JSON."""
    fault = {
        "type": "json_invalid",
        "loc": ("body", error.pos),
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": error.msg.split(":")[0]},
    }
    return validation_error(scope, [fault])


def bad_body(scope: Scope, error: ValidationError) -> ApiError:
    """Return the error of a JSON body with wrong fields."""
    found = error.errors(include_url=False)
    return validation_error(scope, [{**one, "loc": ("body", *one["loc"])} for one in found])


def missing_body(scope: Scope) -> ApiError:
    """Return the error of a request without a body."""
    fault = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
    return validation_error(scope, [fault])


def not_json_type() -> ApiError:
    """Return the error of a content type that the OpenAI endpoints do not accept."""
    fault = {
        "loc": ["header", "content-type"],
        "msg": "Unsupported Media Type: Only 'application/json' is allowed",
        "type": "value_error",
    }
    return openai_error(f"1 validation error:\n  {fault} [{fault}]", "Bad Request")


def validation_error(scope: Scope, faults: list[dict[str, Any]]) -> ApiError:
    """Return FastAPI's validation error, with the line of SGLang's source that it names."""
    path, count = scope["path"], len(faults)
    head = f"{count} validation error{'s' if count > 1 else ''}:"
    lines = "".join(f"\n  {fault}" for fault in faults)
    line, function = _PLACES.get(path, (0, "endpoint"))
    where = f'  File "{_SOURCE}", line {line}, in {function}\n    {scope["method"]} {path}'
    return openai_error(f"{head}{lines}\n\n{where} {faults}", "Bad Request")
