"""Prompts of SGLang's own data sets, where SGLang is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runners.load.prompts.files import messages
from runners.load.prompts.prompts import Prompt, PromptFileError
from runners.load.prompts.server_python import HelperError

if TYPE_CHECKING:
    from runners.load.prompts.server_python import ServerPython
    from search_spaces.prompt_names import PromptName

DATASET_SEED = 42
"""What the data set is drawn with, whatever the study's seed: that one selects from it."""

_TIMEOUT_S = 600.0
_AS_IDS = frozenset({"random", "random-ids"})
"""Data sets whose lengths only hold as token ids: decoded and read again they differ."""


def load_dataset(name: PromptName, server: ServerPython | None) -> tuple[Prompt, ...]:
    """Loads a data set of `sglang.benchmark.serving` in the server's environment.

    Texts are rendered by the chat template like any other prompt; token ids are sent as they are.
    Output lengths of the data set are not used: the workload has its own.

    Args:
        name: Data set and options.
        server: Where SGLang and the model's tokenizer are.

    Raises:
        PromptFileError: SGLang cannot load it, or no server environment is known.
    """
    if server is None:
        raise PromptFileError(
            name.written,
            f"{name.written} needs an environment with SGLang; name its interpreter as "
            "`server.python`, in TUNER_SGLANG_PYTHON or with --python, and the model",
        )
    options = dict(name.options)
    options.setdefault("num-prompts", str(name.most_prompts))
    if name.rest in _AS_IDS:
        options.setdefault("tokenize-prompt", "")
    try:
        seed = int(options.pop("seed", DATASET_SEED))
        request = {"dataset": name.rest, "options": sorted(options.items()), "seed": seed}
        answer = server.ask("sglang_dataset.py", request, timeout_s=_TIMEOUT_S)
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
    return Prompt(prompt_id, messages=messages(item))
