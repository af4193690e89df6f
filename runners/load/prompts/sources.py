"""From what a study or a command writes as its prompts to a prompt source."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from runners.load.prompts.prompts import MixedPrompts, PromptPool, PromptSource, built_in_pool
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.workload import path_from

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runners.load.prompts.prompts import Prompt
    from runners.load.prompts.server_python import ServerPython
    from search_spaces.prompt_names import PromptName
    from search_spaces.workload import SharedPrefix


def prompt_source(
    shares: Iterable[tuple[str, float]],
    *,
    base_dir: Path | str = "",
    server: ServerPython | None = None,
    shared_prefix: SharedPrefix | None = None,
) -> PromptSource:
    """The prompts of a workload.

    Files are read, and data sets loaded, at the first `select`; what is wrong with them is a
    `PromptFileError` there.

    Args:
        shares: Prompt sources and their shares, as in `Workload.prompts`.
        base_dir: Where relative paths start; the working directory if empty.
        server: Where SGLang's data sets are loaded (`sglang:...`).
        shared_prefix: Prefixes to put before the prompts.

    Raises:
        ValueError: A name that is no prompt source, or a share that is not positive.
    """
    pools = [(pool_of(parse_prompt_name(name), base_dir, server), s) for name, s in shares]
    mixed = MixedPrompts(pools)
    if shared_prefix is None:
        return mixed
    from runners.load.prompts.prefixes import SharedPrefixPrompts  # noqa: PLC0415

    return SharedPrefixPrompts(mixed, shared_prefix)


def pool_of(
    name: PromptName, base_dir: Path | str = "", server: ServerPython | None = None
) -> PromptPool:
    """The prompts that a name stands for; see `prompt_source`."""
    if not name.scheme:
        return built_in_pool(name.rest)

    def load() -> tuple[Prompt, ...]:
        if name.scheme == "sglang":
            from runners.load.prompts.sglang_datasets import load_dataset  # noqa: PLC0415

            return load_dataset(_from(Path(base_dir), name), server)
        path = path_from(base_dir, name.rest)
        if name.scheme == "jsonl":
            from runners.load.prompts.files import read_jsonl  # noqa: PLC0415

            return read_jsonl(name.written, path)
        from runners.load.prompts.files import read_sharegpt  # noqa: PLC0415

        return read_sharegpt(name.written, path)

    return PromptPool(name.written, load, what="data set" if name.scheme == "sglang" else "file")


def _from(base_dir: Path, name: PromptName) -> PromptName:
    """The data set with its own path made to start at `base_dir`."""
    options = dict(name.options)
    if path := options.get("dataset-path"):
        options["dataset-path"] = str(path_from(base_dir, path).absolute())
    return dataclasses.replace(name, options=tuple(sorted(options.items())))
