"""Prompt sources by name: built-in prompts, JSONL and ShareGPT files, and SGLang's data sets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from runners.load.prompts.prefixes import SharedPrefixPrompts
from runners.load.prompts.prompts import (
    Message,
    MixedPrompts,
    Prompt,
    PromptFileError,
    PromptPool,
    PromptSource,
    built_in_pool,
)
from runners.load.prompts.server_python import HelperError
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.workload import path_from

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runners.load.prompts.server_python import ServerPython
    from search_spaces.prompt_names import PromptName
    from search_spaces.workload import SharedPrefix


DATASET_SEED = 42
"""Seed of SGLang's data sets. It is fixed: the study's seed selects from the data set."""

_DATASET_TIMEOUT_S = 600.0
_AS_IDS = frozenset({"random", "random-ids"})
"""Data sets whose lengths are exact only as token ids: decoding and encoding changes them."""


def prompt_source(
    shares: Iterable[tuple[str, float]],
    *,
    base_dir: Path | str = "",
    server: ServerPython | None = None,
    shared_prefix: SharedPrefix | None = None,
) -> PromptSource:
    """Return the prompts of a workload.

    The first `select` reads files and loads data sets. It raises `PromptFileError` if that fails.

    Args:
        shares: Prompt names and their shares, as in `Workload.prompts`.
        base_dir: Folder of relative paths; defaults to the working directory.
        server: Environment that loads SGLang's data sets (`sglang:...`).
        shared_prefix: Prefixes for the prompts.

    Raises:
        ValueError: A name is not a prompt source, or a share is not positive.
    """
    pools = [(pool_of(parse_prompt_name(name), base_dir, server), s) for name, s in shares]
    mixed = MixedPrompts(pools)
    return mixed if shared_prefix is None else SharedPrefixPrompts(mixed, shared_prefix)


def pool_of(
    name: PromptName, base_dir: Path | str = "", server: ServerPython | None = None
) -> PromptPool:
    """Return the prompts of one name; see `prompt_source`."""
    if not name.scheme:
        return built_in_pool(name.rest)
    if name.scheme == "sglang":
        load = partial(load_dataset, name, server, base_dir)
        return PromptPool(name.written, load, kind="data set")
    reader = read_jsonl if name.scheme == "jsonl" else read_sharegpt
    load = partial(reader, name.written, path_from(base_dir, name.rest))
    return PromptPool(name.written, load, kind="file")


def load_dataset(
    name: PromptName, server: ServerPython | None, base_dir: Path | str = ""
) -> tuple[Prompt, ...]:
    """Load a data set of `sglang.benchmark.serving` in the server's environment.

    The chat template is applied to texts, not to token ids. The data set's output lengths are not
    used, because the workload defines them.

    Args:
        name: Data set and options.
        server: Environment with SGLang and the model's tokenizer.
        base_dir: Folder of a relative `dataset-path`.

    Raises:
        PromptFileError: SGLang cannot load the data set, or `server` is `None`.
    """
    if server is None:
        raise PromptFileError(
            name.written,
            f"{name.written} needs an environment with SGLang; set its interpreter with "
            "`server.python`, TUNER_SGLANG_PYTHON or --python, and name the model",
        )
    options = dict(name.options)
    if path := options.get("dataset-path"):
        options["dataset-path"] = str(path_from(Path(base_dir), path).absolute())
    options.setdefault("num-prompts", str(name.most_prompts))
    if name.rest in _AS_IDS:
        options.setdefault("tokenize-prompt", "")
    try:
        seed = int(options.pop("seed", DATASET_SEED))
        request = {"dataset": name.rest, "options": sorted(options.items()), "seed": seed}
        answer = server.ask("load_sglang_dataset.py", request, timeout_s=_DATASET_TIMEOUT_S)
        prompts = [_prompt(name, n, item) for n, item in enumerate(answer["prompts"])]
    except (HelperError, KeyError, TypeError, ValueError) as error:
        raise PromptFileError(
            name.written,
            f"{name.written} could not be loaded with {' '.join(server.argv)}: {error}; "
            "its options are the flags of `python -m sglang.benchmark.serving`",
        ) from error
    distinct = {prompt.content: prompt for prompt in reversed(prompts)}
    return tuple(reversed(distinct.values()))


def _prompt(name: PromptName, number: int, item: Any) -> Prompt:  # noqa: ANN401 - JSON
    prompt_id = f"{name.written}/{number:04d}"
    if isinstance(item, str):
        return Prompt(prompt_id, item)
    if isinstance(item, list) and item and all(isinstance(part, int) for part in item):
        return Prompt(prompt_id, input_ids=tuple(item))
    return Prompt(prompt_id, messages=parse_messages(item))


_KEYS = ("prompt", "text", "messages", "input_ids")


def read_jsonl(source: str, path: Path) -> tuple[Prompt, ...]:
    """Read a JSONL file of prompts.

    A line is a string, or an object with one of `prompt`, `text`, `messages` (turns of a chat in
    OpenAI's format) and `input_ids`; other keys are ignored. Empty lines and repeated prompts are
    skipped. A prompt's id contains its line number.

    Args:
        source: Name of the source as the user wrote it (`"jsonl:mine.jsonl"`); ids begin with it.
        path: File.

    Raises:
        PromptFileError: The file cannot be read, or a line is not a prompt.
    """
    prompts: dict[tuple[object, ...], Prompt] = {}
    for number, line in enumerate(read_file(source, path).splitlines(), start=1):
        if not line.strip():
            continue
        prompt = _parse_line(source, path, number, line)
        prompts.setdefault(prompt.content, prompt)
    if not prompts:
        raise PromptFileError(source, f"{path} has no prompts; write one JSON object per line")
    return tuple(prompts.values())


def read_file(source: str, path: Path) -> bytes:
    """Return the content of a file of prompts.

    Raises:
        PromptFileError: The file cannot be read.
    """
    try:
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise PromptFileError(
            source,
            f"cannot read {path} ({reason}); relative paths start in the folder of the study file, "
            "or in the working directory of the command",
        ) from error


def _parse_line(source: str, path: Path, number: int, line: bytes) -> Prompt:
    where = f"{path}, line {number}"
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise PromptFileError(source, f"{where}: not JSON: {error}") from error
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict):
        kind = type(value).__name__
        message = f"{where}: a prompt must be a string or an object, not a {kind}"
        raise PromptFileError(source, message)
    given = [key for key in _KEYS if value.get(key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise PromptFileError(
            source, f"{where}: a prompt needs one of the keys {', '.join(_KEYS)}; found {found}"
        )
    name = f"{source}/{number}"
    key, content = given[0], value[given[0]]
    try:
        if key == "input_ids":
            return Prompt(name, input_ids=_ids(content))
        if key == "messages" or isinstance(content, list):
            return Prompt(name, messages=parse_messages(content))
        return Prompt(name, _text(content))
    except ValueError as error:
        raise PromptFileError(source, f"{where}: {key}: {error}") from error


def _text(content: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(content, str):
        raise ValueError(f"must be text, not {content!r:.60}")  # noqa: TRY004 - wrong content of a file
    if not content.strip():
        raise ValueError("is empty")
    return content


def _ids(content: Any) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    good = isinstance(content, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in content
    )
    if not good or not content:
        raise ValueError(f"must be a list of token ids, not {content!r:.60}")
    return tuple(content)


def parse_messages(content: Any) -> tuple[Message, ...]:  # noqa: ANN401 - JSON
    """Parse the turns of a chat in OpenAI's format.

    Raises:
        ValueError: The format is wrong, or a turn has content other than text.
    """
    if not isinstance(content, list) or not content:
        raise ValueError(f"must be a list of turns with role and content, not {content!r:.60}")
    turns = tuple(_turn(item) for item in content)
    if not any(text.strip() for _, text in turns):
        raise ValueError("all turns are empty")
    return turns


def _turn(item: Any) -> Message:  # noqa: ANN401 - JSON
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        raise ValueError(f"a turn needs a role and a content, not {item!r:.60}")  # noqa: TRY004
    content = item.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise ValueError("only parts of type text are supported; remove images and audio")
        parts = [part.get("text") for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(f"the text of a part must be text, not {parts!r:.60}")
        content = "".join(parts)
    if not isinstance(content, str):
        raise ValueError(f"the content of a turn must be text, not {content!r:.60}")  # noqa: TRY004
    return item["role"], content


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
    """Read the conversations of a ShareGPT file up to the first answer.

    A prompt has the system prompt, if any, and the user's first turns. The file is a list of
    objects, or has one object per line. The turns are in `conversations`, `conversation`,
    `messages` or `items`, with `from` and `value`, or `role` and `content`. Empty and repeated
    conversations, and those that begin with an answer, are skipped. A prompt's id contains the
    conversation's position in the file.

    Args:
        source: Name of the source as the user wrote it (`"sharegpt:chats.json"`); ids begin with
            it.
        path: File.

    Raises:
        PromptFileError: The file cannot be read, has another format, or has no conversation.
    """
    prompts: dict[tuple[object, ...], Prompt] = {}
    for place, item in enumerate(_items(source, path)):
        turns = _first_turns(item)
        if turns is None:
            raise PromptFileError(
                source,
                f"{path}, conversation {place}: not in ShareGPT's format, for example "
                '{"conversations": [{"from": "human", "value": "..."}]}',
            )
        if not turns:
            continue
        name = f"{source}/{place}"
        only_text = len(turns) == 1 and turns[0][0] == "user"
        prompt = Prompt(name, turns[0][1]) if only_text else Prompt(name, messages=turns)
        prompts.setdefault(prompt.content, prompt)
    if not prompts:
        raise PromptFileError(source, f"{path} has no conversation that begins with a question")
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
    """Return the turns before the first answer; empty without a question, `None` if invalid."""
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
