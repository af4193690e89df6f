"""Helpers that run in the server's environment: what knows the model runs where the model is."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class HelperError(Exception):
    """A helper gave no answer; the text says why, in words that may follow a colon."""


@dataclass(frozen=True, slots=True)
class ServerPython:
    """The Python of a server's environment, and the model that is served.

    Attributes:
        argv: The command that runs it (`("/opt/venv/bin/python",)`, or with a prefix before it).
        model_path: The tokenizer's path or name, as that Python sees it.
        env: Its whole environment (the model may be found only through HF_HOME, say); the
            caller's own if `None`.
        trust_remote_code: Whether the tokenizer may run code of its own.
    """

    argv: tuple[str, ...]
    model_path: str
    env: Mapping[str, str] | None = None
    trust_remote_code: bool = False

    def ask(self, helper: str, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Runs a helper script of this package; what it answers.

        Args:
            helper: Name of the script. It reads one JSON value from stdin, with `model_path` and
                `trust_remote_code` in it, and its last line on stdout is one JSON object.
            request: The rest of the request.
            timeout_s: Real seconds, its imports included.

        Raises:
            HelperError: It cannot be started, fails, hangs, or answers nonsense.
        """
        whole = {
            "model_path": self.model_path,
            "trust_remote_code": self.trust_remote_code,
            **request,
        }
        script = Path(__file__).with_name(helper).read_text("utf-8")
        try:
            # As text, not by path: behind a command prefix (a container) our files are not there.
            done = subprocess.run(
                (*self.argv, "-c", script),
                input=json.dumps(whole),
                env=self.env,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except OSError as error:
            raise HelperError(f"{self.argv[0]} cannot be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise HelperError(f"no answer within {timeout_s:g} s") from error
        if done.returncode != 0:
            tail = [line.strip() for line in done.stderr.strip().splitlines()[-3:]]
            raise HelperError(f"exit status {done.returncode}: {' | '.join(tail)}")
        try:
            # The last line is the answer: imports may print before it.
            answer: dict[str, Any] = dict(json.loads(done.stdout.strip().splitlines()[-1]))
        except (ValueError, IndexError, TypeError) as error:
            raise HelperError(f"unreadable answer {done.stdout[-200:]!r}") from error
        return answer
