"""Rendering: apply the model's chat template in the server's environment."""

from __future__ import annotations

import abc
import logging
from typing import TYPE_CHECKING, Any

from results.records import Failure
from runners.base import RunnerError
from runners.load.prompts.prefixes import with_prefix_as_text
from runners.load.prompts.prompts import Prompt
from runners.load.prompts.server_python import HelperError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.prompts.server_python import ServerPython

_log = logging.getLogger(__name__)

_Key = tuple[object, ...]


class Renderer(abc.ABC):
    """Convert prompts to the form that is sent; order and ids stay the same.

    Rendering is deterministic. Rendered prompts have no `prefix`.
    """

    @abc.abstractmethod
    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """Render prompts.

        Raises:
            RunnerError: The template cannot be applied (a fault of the study).
        """


class IdentityRenderer(Renderer):
    """Send prompts without a chat template; the server tokenizes them.

    Prefixes are counted in words, because there is no tokenizer.
    """

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`."""
        return tuple(map(with_prefix_as_text, prompts))


class ChatTemplateRenderer(Renderer):
    """Apply the model's chat template with the `transformers` of the server's environment.

    A helper process renders the prompts, because the tuner's environment has neither transformers
    nor the model. Rendered prompts are cached, so a study needs one process. Without a chat
    template, texts are sent unchanged, and chats of several turns as text with role names.
    """

    def __init__(self, python: ServerPython, *, timeout_s: float = 300.0) -> None:
        """Set the helper's environment; the first rendering starts the helper.

        Args:
            python: Python of the server's environment, and the model.
            timeout_s: Limit for the helper in real seconds, including its imports.
        """
        self._python = python
        self._timeout_s = timeout_s
        self._rendered: dict[_Key, tuple[int, ...]] = {}
        self.used_template: bool | None = None
        """Whether the tokenizer has a chat template; `None` before the first rendering."""

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`; token ids without a prefix stay unchanged."""
        missing = {
            prompt.content: prompt
            for prompt in prompts
            if _to_render(prompt) and prompt.content not in self._rendered
        }
        if missing:
            rendered = self._run(tuple(missing.values()))
            self._rendered.update(zip(missing, rendered, strict=True))
        return tuple(
            Prompt(prompt.id, input_ids=self._rendered[prompt.content])
            if _to_render(prompt)
            else prompt
            for prompt in prompts
        )

    def _run(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        # Each long prefix is sent to the helper once.
        prefixes = list({p.prefix: None for p in prompts if p.prefix is not None})
        request = {
            "prefixes": [[prefix.text, prefix.tokens] for prefix in prefixes],
            "prompts": [
                {
                    "turns": [{"role": role, "content": content} for role, content in p.turns],
                    "text": p.text,
                    "input_ids": p.input_ids,
                    "prefix": None if p.prefix is None else prefixes.index(p.prefix),
                }
                for p in prompts
            ],
        }
        try:
            answer = self._python.ask("render_chat.py", request, timeout_s=self._timeout_s)
            rendered, self.used_template = _read(answer)
        except HelperError as error:
            raise self._error(str(error)) from error
        if len(rendered) != len(prompts) or not all(rendered):
            raise self._error(
                f"{len(prompts)} prompts gave {len(rendered)} renderings, or empty renderings"
            )
        if not self.used_template:
            _log.warning(
                "the tokenizer of %s has no chat template: prompts are sent without one",
                self._python.model_path,
            )
        return rendered

    def _error(self, reason: str) -> RunnerError:
        message = (
            f"the chat template of {self._python.model_path} could not be applied with "
            f"{' '.join(self._python.argv)}: {reason}"
        )
        return RunnerError(
            Failure(kind="chat_template", phase="load", fault="study", message=message)
        )


def _to_render(prompt: Prompt) -> bool:
    return prompt.input_ids is None or prompt.prefix is not None


def _read(answer: dict[str, Any]) -> tuple[list[tuple[int, ...]], bool]:
    try:
        return [tuple(ids) for ids in answer["input_ids"]], bool(answer["used_template"])
    except (KeyError, TypeError) as error:
        raise HelperError(f"invalid response {str(answer)[:200]!r}") from error
