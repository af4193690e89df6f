"""Prompts from a ShareGPT file: what its users asked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from runners.load.jsonl_prompts import read_file
from runners.load.prompts import Message, Prompt, PromptFileError

if TYPE_CHECKING:
    from pathlib import Path

_TURNS = ("conversations", "conversation", "messages", "items")
_ROLES = {
    "human": "user",
    "user": "user",
    "system": "system",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "model": "assistant",
}


def read_sharegpt(source: str, path: Path) -> tuple[Prompt, ...]:
    """Reads the conversations up to the first answer: a system prompt if any, and the user's turn.

    The usual shapes are read: a list of objects, or one object per line, whose `conversations`
    (`conversation`, `messages`, `items`) hold turns with `from` and `value`, or `role` and
    `content`. Conversations that begin with an answer, are empty or stand there twice are left
    out. A prompt's id names the conversation's place in the file.

    Args:
        source: How the source was written (`"sharegpt:chats.json"`): the ids begin with it.
        path: The file.

    Raises:
        PromptFileError: It cannot be read, is of another shape, or holds no conversation.
    """
    prompts: dict[tuple[object, ...], Prompt] = {}
    for place, item in enumerate(_items(source, path)):
        turns = _first_turns(item)
        if turns is None:
            raise PromptFileError(
                source,
                f"{path}, conversation {place}: not of ShareGPT's shape; it looks like "
                '{"conversations": [{"from": "human", "value": "..."}]}',
            )
        if not turns:
            continue
        name = f"{source}/{place}"
        only_text = len(turns) == 1 and turns[0][0] == "user"
        prompt = Prompt(name, turns[0][1]) if only_text else Prompt(name, messages=turns)
        prompts.setdefault(prompt.content, prompt)
    if not prompts:
        raise PromptFileError(source, f"{path} holds no conversation that begins with a question")
    return tuple(prompts.values())


def _items(source: str, path: Path) -> list[Any]:
    raw = read_file(source, path)
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        lines = [line for line in raw.splitlines() if line.strip()]
        try:
            return [orjson.loads(line) for line in lines]
        except orjson.JSONDecodeError:
            raise PromptFileError(source, f"{path}: not JSON: {error}") from error
    return whole if isinstance(whole, list) else [whole]


def _first_turns(item: Any) -> tuple[Message, ...] | None:  # noqa: ANN401 - JSON
    """Turns up to the first answer; empty where there is no question, `None` for another shape."""
    turns = item
    if isinstance(item, dict):
        turns = next((item[key] for key in _TURNS if key in item), None)
    if not isinstance(turns, list):
        return None
    out: list[Message] = []
    for turn in turns:
        if not isinstance(turn, dict):
            return None
        role = _ROLES.get(str(turn.get("from", turn.get("role"))).lower())
        content = turn.get("value", turn.get("content"))
        if not isinstance(content, str) or role is None:
            return None
        if role == "assistant":
            break
        if content.strip():
            out.append((role, content))
    return tuple(out) if any(role == "user" for role, _ in out) else ()
