"""Find and redact secrets in launch commands and studies."""

from __future__ import annotations

import re
from typing import TypeVar

from search_spaces.flags.flags import canonical_flag

SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
"""SGLang flags whose values are secrets (0.5.23, `server_args.py`)."""

_EXPORT_ONLY = frozenset({"host", "port", *SECRET_FLAGS})

_SECRET = re.compile(
    r"(^|_)([A-Z]*SECRETS?|[A-Z]*PASSWORD|PASSWD|API_?KEYS?|ACCESS_KEY(_ID)?|PRIVATE_KEY"
    r"|CREDENTIALS?)(_|$)"
)
# TOKEN as a whole word: tokenizers and token counts are not secrets. TOKEN in SGLang's variables
# means tokens of the model (0.5.23, `environ.py`).
_SECRET_TOKEN = re.compile(
    r"(?!SGLANG_|SGL_|NCCL_)(.*_)?(?<!PER_)(?<!MAX_)(?<!NEW_)[A-Z]*TOKEN(_.*)?"
)
# Tokens with a known prefix: Hugging Face, OpenAI, NVIDIA, GitHub.
_TOKEN = re.compile(
    r"(?<![\w/-])(hf_[A-Za-z0-9]{16,}|sk-(?=\D{,60}\d)[A-Za-z0-9_-]{20,}|nvapi-[\w-]{20,}"
    r"|gh[ps]_\w{20,})"
)
_IN_ADDRESS = re.compile(r"(://[^\s/:@]*):([^\s/@$][^\s/@]*)@")
_REFERENCE = re.compile(r"\$(\w+|\{\w+\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=([^,\s]+)")

T = TypeVar("T")


def is_secret(name: str) -> bool:
    """Return whether the value of a flag or environment variable is a secret."""
    if canonical_flag(name) in SECRET_FLAGS:
        return True
    upper = name.upper()
    return bool(_SECRET.search(upper) or _SECRET_TOKEN.fullmatch(upper))


def is_export_only(flag: str) -> bool:
    """Return whether a flag is only for the exported command: address, keys and TLS.

    Servers of trials listen on loopback, on free ports, without keys.
    """
    name = canonical_flag(flag)
    return name in _EXPORT_ONLY or name.startswith("ssl-")


def is_reference(value: object) -> bool:
    """Return whether a value is a reference to a variable: `$NAME` or `${NAME}`."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def reference(name: str) -> str:
    """Return the reference that replaces a secret: `$HF_TOKEN`; for a flag `$SGLANG_API_KEY`."""
    flag = canonical_flag(name)
    if flag in SECRET_FLAGS:
        return f"$SGLANG_{flag.replace('-', '_').upper()}"
    return f"${name}"


def redact(name: str, value: T) -> T | str:
    """Replace `value` by a reference if `name` holds a secret; idempotent."""
    if value is None or value is False or is_reference(value) or not is_secret(name):
        return value
    return reference(name)


def redact_text(text: str) -> str:
    """Replace the secrets in a text by references.

    Secrets are values of secret names (`NAME=value`), passwords in URLs (`http://user:word@proxy`)
    and tokens with a known prefix.
    """

    def assigned(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"{name}={redact(name, value)}"

    without = _IN_ADDRESS.sub(r"\1:$PASSWORD@", _ASSIGNMENT.sub(assigned, text))
    return _TOKEN.sub("$TOKEN", without)


def holds_token(text: str) -> bool:
    """Return whether a text contains a token with a known prefix or a password in a URL."""
    return bool(_TOKEN.search(text) or _IN_ADDRESS.search(text))
