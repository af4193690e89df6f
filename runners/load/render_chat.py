"""Applies a model's chat template; its text is run by the server environment's Python.

Reads `{"model_path", "trust_remote_code", "texts"}` from stdin and writes one JSON line
`{"used_template", "input_ids"}` to stdout. Standard library and transformers only: nothing of the
tuner can be imported there, and that Python may be older than the tuner's.
"""

from __future__ import annotations

import sys

# Run by `-c`, the working directory comes first on the path: it must shadow nothing.
sys.path[:] = [path for path in sys.path if path]

import json  # noqa: E402
from typing import Any  # noqa: E402


def render(tokenizer: Any, texts: list[str]) -> tuple[bool, list[list[int]]]:  # noqa: ANN401
    """Token ids of each text as a user's first message, and whether a template was applied."""
    if not getattr(tokenizer, "chat_template", None):
        return False, [list(tokenizer.encode(text)) for text in texts]
    rendered = []
    for text in texts:
        message = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        # The template writes the special tokens itself; a second begin-of-sequence would not be
        # what production sends.
        rendered.append(list(tokenizer.encode(message, add_special_tokens=False)))
    return True, rendered


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds, and only in that environment

    tokenizer = AutoTokenizer.from_pretrained(
        request["model_path"], trust_remote_code=request["trust_remote_code"]
    )
    used, rendered = render(tokenizer, request["texts"])
    sys.stdout.write("\n" + json.dumps({"used_template": used, "input_ids": rendered}) + "\n")


if __name__ == "__main__":
    main()
