"""Run helper scripts in the Python of the server's environment, where the model is."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class HelperError(Exception):
    """A helper script failed; the message is a phrase that can follow a colon."""


@dataclass(frozen=True, slots=True)
class ServerPython:
    """Python of a server's environment, and the served model.

    Attributes:
        argv: Command that runs the Python (`("/opt/venv/bin/python",)`), perhaps with a prefix.
        model_path: Path or name of the tokenizer in this environment.
        env: All environment variables (the model may need HF_HOME); `None` for the caller's.
        trust_remote_code: Whether the tokenizer may run code from the model's repository.
    """

    argv: tuple[str, ...]
    model_path: str
    env: Mapping[str, str] | None = None
    trust_remote_code: bool = False

    def ask(self, helper: str, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Run a helper script of this package and return its answer.

        Args:
            helper: File name of the script. It reads a JSON object from stdin, and writes a JSON
                object in the last line of stdout.
            request: Input of the script; `model_path` and `trust_remote_code` are added.
            timeout_s: Limit in real seconds, including imports.

        Raises:
            HelperError: The script cannot be started, fails, hangs, or returns invalid output.
        """
        whole = {
            "model_path": self.model_path,
            "trust_remote_code": self.trust_remote_code,
            **request,
        }
        script = Path(__file__).with_name(helper).read_text("utf-8")
        try:
            # As text, not by path: a container has no access to this package's files.
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
            raise HelperError(f"{self.argv[0]} could not be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise HelperError(f"no answer within {timeout_s:g} s") from error
        if done.returncode != 0:
            tail = [line.strip() for line in done.stderr.strip().splitlines()[-3:]]
            raise HelperError(f"exit status {done.returncode}: {' | '.join(tail)}")
        try:
            # Imports may print lines before the answer.
            answer: dict[str, Any] = dict(json.loads(done.stdout.strip().splitlines()[-1]))
        except (ValueError, IndexError, TypeError) as error:
            raise HelperError(f"invalid output {done.stdout[-200:]!r}") from error
        return answer
