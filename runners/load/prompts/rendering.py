"""The chat-template hook: what production sends, made in the server's own environment."""

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
    """Turns prompts into what is sent, one to one, in the same order and with the same ids.

    Deterministic: the same prompt is always rendered alike. No rendered prompt has a `prefix`.
    """

    @abc.abstractmethod
    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """Renders `prompts`.

        Raises:
            RunnerError: The template cannot be applied (a fault of the study).
        """


class IdentityRenderer(Renderer):
    """Sends prompts as they are; the server tokenizes them, without a chat template.

    Prefixes are counted in words, as no tokenizer is at hand.
    """

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`."""
        return tuple(map(with_prefix_as_text, prompts))


class ChatTemplateRenderer(Renderer):
    """Applies the model's chat template with the server environment's `transformers`.

    A helper process does it, as the tuner's own environment needs neither transformers nor the
    model. What was rendered is kept, so a study pays for the process once. Where the model has no
    template, texts are sent without one, chats of several turns with their roles written out.
    """

    def __init__(self, python: ServerPython, *, timeout_s: float = 300.0) -> None:
        """Starts nothing yet.

        Args:
            python: The server's Python, and the model.
            timeout_s: Real seconds for the helper, its imports included.
        """
        self._python = python
        self._timeout_s = timeout_s
        self._rendered: dict[_Key, tuple[int, ...]] = {}
        self.used_template: bool | None = None
        """Whether the tokenizer has a chat template; `None` before the first rendering."""

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`; prompts that are token ids already are left as they are."""
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
        # A prefix is long and common to many: it is sent once.
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
                f"{len(prompts)} texts gave {len(rendered)} renderings, or empty ones"
            )
        if not self.used_template:
            _log.warning(
                "the tokenizer of %s has no chat template: prompts are sent without one",
                self._python.model_path,
            )
        return rendered

    def _error(self, what: str) -> RunnerError:
        message = (
            f"the chat template of {self._python.model_path} could not be applied with "
            f"{' '.join(self._python.argv)}: {what}"
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
        raise HelperError(f"unreadable answer {str(answer)[:200]!r}") from error
