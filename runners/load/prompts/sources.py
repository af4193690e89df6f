"""From the prompt names of a study or a command to a prompt source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.load.prompts.files import parse_messages, read_jsonl, read_sharegpt
from runners.load.prompts.prefixes import SharedPrefixPrompts
from runners.load.prompts.prompts import (
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
