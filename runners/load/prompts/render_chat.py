"""Helper script: apply a model's chat template in the Python of the server's environment.

The script reads `{"model_path", "trust_remote_code", "prefixes", "prompts"}` from stdin and writes
one JSON line `{"used_template", "input_ids"}` to stdout. A prefix is `[text, tokens]`. A prompt has
its `turns` and `text`, or `input_ids`, and the index of its `prefix` or null. The script imports
only the standard library and transformers: the tuner is not installed there, and the Python may be
older.
"""

from __future__ import annotations

import sys

# With `-c` the working directory is first on the path; its files must not shadow modules.
sys.path[:] = [path for path in sys.path if path]

import json  # noqa: E402
from typing import Any  # noqa: E402

MARK = "\ue000\ue001\ue000"
"""Placeholder of a prefix in the template; private-use characters, in no vocabulary."""


class Renderer:
    """Render prompts with one tokenizer."""

    def __init__(self, tokenizer: Any, prefixes: list[list[Any]]) -> None:  # noqa: ANN401
        self.tokenizer = tokenizer
        self.used_template = bool(getattr(tokenizer, "chat_template", None))
        self.prefixes = [self._cut(text, tokens) for text, tokens in prefixes]

    def render(self, prompt: dict[str, Any]) -> list[int]:
        """Return the token ids of one prompt; the prefix keeps its own tokens."""
        prefix = [] if prompt["prefix"] is None else self.prefixes[prompt["prefix"]]
        if prompt["input_ids"] is not None:
            return prefix + list(prompt["input_ids"])
        if self.used_template:
            return self._templated(prompt["turns"], prefix)
        if not prefix:
            return list(self.tokenizer.encode(prompt["text"]))
        bare = self._encode("\n\n" + prompt["text"])
        # Tokens that the tokenizer puts before a text (begin of sequence) stay first.
        whole = list(self.tokenizer.encode("\n\n" + prompt["text"]))
        begin = next((n for n in range(len(whole)) if whole[n : n + len(bare)] == bare), 0)
        return whole[:begin] + prefix + whole[begin:]

    def _templated(self, turns: list[dict[str, str]], prefix: list[int]) -> list[int]:
        if prefix:
            first = dict(turns[0], content=MARK + "\n\n" + turns[0]["content"])
            turns = [first, *turns[1:]]
        message = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        # The template contains the special tokens; a second begin-of-sequence would be wrong.
        if not prefix:
            return self._encode(message)
        head, mark, rest = message.partition(MARK)
        if not mark:
            raise SystemExit("the chat template drops the first message, and with it the prefix")
        return self._encode(head) + prefix + self._encode(rest.replace(MARK, ""))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _cut(self, text: str, tokens: int) -> list[int]:
        ids = self._encode(text)
        if len(ids) < tokens:
            raise SystemExit(f"the prefix needs {tokens} tokens, but its text has {len(ids)}")
        return ids[:tokens]


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow, and only there

    tokenizer = AutoTokenizer.from_pretrained(
        request["model_path"], trust_remote_code=request["trust_remote_code"]
    )
    renderer = Renderer(tokenizer, request["prefixes"])
    ids = [renderer.render(prompt) for prompt in request["prompts"]]
    answer = {"used_template": renderer.used_template, "input_ids": ids}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
