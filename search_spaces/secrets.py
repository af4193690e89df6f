"""Secrets of launch commands and studies: which names hold one, and what is written instead."""

from __future__ import annotations

import re
from typing import TypeVar

from search_spaces.flags.flags import canonical_flag

SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
"""SGLang's flags that hold a secret (0.5.23, `server_args.py`)."""

_EXPORT_ONLY = frozenset({"host", "port", *SECRET_FLAGS})

_SECRET = re.compile(
    r"(^|_)([A-Z]*SECRETS?|[A-Z]*PASSWORD|PASSWD|API_?KEYS?|ACCESS_KEY(_ID)?|PRIVATE_KEY"
    r"|CREDENTIALS?)(_|$)"
)
# A whole word: tokenizers and counts of tokens are no secrets. SGLang's own variables with TOKEN
# in them speak of the model's tokens (0.5.23, `environ.py`).
_SECRET_TOKEN = re.compile(
    r"(?!SGLANG_|SGL_|NCCL_)(.*_)?(?<!PER_)(?<!MAX_)(?<!NEW_)[A-Z]*TOKEN(_.*)?"
)
# Tokens whose makers give them a prefix: Hugging Face, OpenAI, NVIDIA, GitHub.
_TOKEN = re.compile(
    r"(?<![\w/-])(hf_[A-Za-z0-9]{16,}|sk-(?=\D{,60}\d)[A-Za-z0-9_-]{20,}|nvapi-[\w-]{20,}"
    r"|gh[ps]_\w{20,})"
)
_IN_ADDRESS = re.compile(r"(://[^\s/:@]*):([^\s/@$][^\s/@]*)@")
_REFERENCE = re.compile(r"\$(\w+|\{\w+\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=([^,\s]+)")

T = TypeVar("T")


def is_secret(name: str) -> bool:
    """Whether a flag (with or without dashes) or an environment variable holds a secret."""
    if canonical_flag(name) in SECRET_FLAGS:
        return True
    upper = name.upper()
    return bool(_SECRET.search(upper) or _SECRET_TOKEN.fullmatch(upper))


def is_export_only(flag: str) -> bool:
    """Whether a flag is for the exported command alone: the server's address, keys and TLS.

    Servers of trials listen on loopback, on ports of their own, without keys.
    """
    name = canonical_flag(flag)
    return name in _EXPORT_ONLY or name.startswith("ssl-")


def is_reference(value: object) -> bool:
    """Whether a value is nothing but `$NAME` or `${NAME}`: it names a secret and holds none."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def reference(name: str) -> str:
    """What is written in place of a secret: `$HF_TOKEN`; for a flag `$SGLANG_API_KEY`."""
    flag = canonical_flag(name)
    if flag in SECRET_FLAGS:
        return f"$SGLANG_{flag.replace('-', '_').upper()}"
    return f"${name}"


def redact(name: str, value: T) -> T | str:
    """`value`, or what stands in its place where `name` holds a secret. Idempotent."""
    if value is None or value is False or is_reference(value) or not is_secret(name):
        return value
    return reference(name)


def redact_text(text: str) -> str:
    """`text` without the secrets in it.

    They are `NAME=value` of secret names, passwords of addresses (`http://user:word@proxy`), and
    tokens of well-known makers.
    """

    def assigned(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"{name}={redact(name, value)}"

    without = _IN_ADDRESS.sub(r"\1:$PASSWORD@", _ASSIGNMENT.sub(assigned, text))
    return _TOKEN.sub("$TOKEN", without)


def holds_token(text: str) -> bool:
    """Whether a token of a well-known maker, or the password of an address, is in a text."""
    return bool(_TOKEN.search(text) or _IN_ADDRESS.search(text))
