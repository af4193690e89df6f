"""The chat-template hook: what production sends, made in the server's own environment."""

from __future__ import annotations

import abc
import json
import logging
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records import Failure
from runners.base import RunnerError
from runners.load.prompts import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HELPER = Path(__file__).with_name("render_chat.py")
_log = logging.getLogger(__name__)


class Renderer(abc.ABC):
    """Turns prompts into what is sent, one to one, in the same order and with the same ids.

    Deterministic: the same prompt is always rendered alike.
    """

    @abc.abstractmethod
    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """Renders `prompts`.

        Raises:
            RunnerError: The template cannot be applied (a fault of the study).
        """


class IdentityRenderer(Renderer):
    """Sends prompts as they are; the server tokenizes them, without a chat template."""

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`."""
        return tuple(prompts)


class ChatTemplateRenderer(Renderer):
    """Applies the model's chat template with the server environment's `transformers`.

    A helper process does it, as the tuner's own environment needs neither transformers nor the
    model. What was rendered is kept, so a study pays for the process once.
    """

    def __init__(
        self,
        python_argv_prefix: Sequence[str],
        model_path: str,
        *,
        env: Mapping[str, str] | None = None,
        trust_remote_code: bool = False,
        timeout_s: float = 300.0,
    ) -> None:
        """Starts nothing yet.

        Args:
            python_argv_prefix: The command that runs the server's Python
                (`["/opt/venv/bin/python"]`, or with a command prefix before it).
            model_path: The tokenizer's path or name, as that Python sees it.
            env: Its whole environment (the model may be found only through HF_HOME, say); the
                caller's own if not given.
            trust_remote_code: Whether the tokenizer may run code of its own.
            timeout_s: Real seconds for the helper, its imports included.
        """
        self._prefix = tuple(python_argv_prefix)
        self._model_path = model_path
        self._env = env
        self._trust_remote_code = trust_remote_code
        self._timeout_s = timeout_s
        self._rendered: dict[str, tuple[int, ...]] = {}
        self.used_template: bool | None = None
        """Whether the tokenizer has a chat template; `None` before the first rendering."""

    def render(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
        """See `Renderer.render`; prompts that are token ids already are left as they are."""
        missing = {
            prompt.text: None
            for prompt in prompts
            if prompt.text is not None and prompt.text not in self._rendered
        }
        if missing:
            texts = list(missing)
            self._rendered.update(zip(texts, self._run(texts), strict=True))
        return tuple(
            prompt
            if prompt.text is None
            else Prompt(prompt.id, input_ids=self._rendered[prompt.text])
            for prompt in prompts
        )

    def _run(self, texts: list[str]) -> list[tuple[int, ...]]:
        request = {
            "model_path": self._model_path,
            "trust_remote_code": self._trust_remote_code,
            "texts": texts,
        }
        try:
            # As text, not by path: behind a command prefix (a container) our files are not there.
            done = subprocess.run(
                (*self._prefix, "-c", _HELPER.read_text("utf-8")),
                input=json.dumps(request),
                env=self._env,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except OSError as error:
            raise self._error(f"{self._prefix[0]} cannot be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise self._error(f"no answer within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            tail = done.stderr.strip().splitlines()[-3:]
            raise self._error(f"exit status {done.returncode}: {' | '.join(tail)}")
        try:
            # The last line is the answer: imports may print before it.
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            rendered = [tuple(ids) for ids in answer["input_ids"]]
            self.used_template = bool(answer["used_template"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise self._error(f"unreadable answer {done.stdout[-200:]!r}") from error
        if len(rendered) != len(texts) or not all(rendered):
            raise self._error(f"{len(texts)} texts gave {len(rendered)} renderings, or empty ones")
        if not self.used_template:
            _log.warning(
                "the tokenizer of %s has no chat template: prompts are sent without one",
                self._model_path,
            )
        return rendered

    def _error(self, what: str) -> RunnerError:
        message = (
            f"the chat template of {self._model_path} could not be applied with "
            f"{' '.join(self._prefix)}: {what}"
        )
        return RunnerError(
            Failure(kind="chat_template", phase="load", fault="study", message=message)
        )
