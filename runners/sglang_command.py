"""A configuration as SGLang's command line. Pure: nothing is read from this machine."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from runners.base import LaunchCommand
from search_spaces.algorithms import ALGORITHMS
from search_spaces.flags import canonical_env_value, canonical_flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from search_spaces.configuration import Configuration, Speculation
    from search_spaces.study import Study

SGLANG_MODULE = "sglang.launch_server"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30000
"""SGLang's own defaults (server_args.py, 0.5.9 to 0.5.23)."""


def sglang_command(
    study: Study,
    configuration: Configuration,
    *,
    python: str,
    module: str = SGLANG_MODULE,
    host: str | None = None,
    port: int | None = None,
    extra: Iterable[str] = (),
    env: Mapping[str, str | None] | None = None,
) -> LaunchCommand:
    """The command that starts `configuration`.

    Flags are written in full, in a fixed order: model, speculation, the study's fixed flags, the
    flags that it varies, address. A varied flag or variable replaces a fixed one of its name.

    Args:
        study: Gives the fixed part.
        configuration: Gives what the study varies.
        python: The interpreter.
        module: What it runs: SGLang, or the simulated server.
        host: The address; `None` takes the study's, or SGLang's default.
        port: The port; `None` takes the study's, or SGLang's default.
        extra: Further words, after all flags.
        env: Further variables (`None`: removed); they win.
    """
    tuned = dict(configuration.flags)
    fixed = {name: value for name, value in study.server.flags.items() if name not in tuned}
    own_host, own_port = fixed.pop("host", None), fixed.pop("port", None)
    argv = [python, "-m", module, "--model-path", study.model.path]
    argv += _speculation_words(configuration.speculation, study.model.draft)
    for name, value in {**fixed, **tuned}.items():
        argv += flag_words(name, value)
    argv += ["--host", str(host or own_host or DEFAULT_HOST)]
    argv += ["--port", str(port or own_port or DEFAULT_PORT)]
    argv += extra
    return with_variables(argv, {**study.server.env, **dict(configuration.env), **(env or {})})


def with_variables(argv: Iterable[str], variables: Mapping[str, Any]) -> LaunchCommand:
    """A command that sets variables, and removes those that are `None`."""
    canonical = sorted((name, canonical_env_value(value)) for name, value in variables.items())
    return LaunchCommand(
        tuple(argv),
        tuple((name, value) for name, value in canonical if value is not None),
        tuple(name for name, value in canonical if value is None),
    )


def flag_words(name: str, value: Any) -> list[str]:  # noqa: ANN401 - any value that YAML can hold
    """A flag and its value as words of a command line."""
    flag = f"--{name}"
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (list, tuple)):
        return [flag, *(str(item) for item in value)]
    if isinstance(value, dict):
        return [flag, json.dumps(value, separators=(",", ":"))]
    return [flag, str(value)]


def flag_destination(name: str) -> str:
    """The name under which `/server_info` shows a flag."""
    return canonical_flag(name).replace("-", "_")


def tp_size(study: Study) -> int:
    """The target's tensor-parallel size."""
    return int(study.server.flags.get("tp-size") or 1)


def shell(command: LaunchCommand) -> str:
    """`command` as one line to paste into a POSIX shell."""
    words = [f"{name}={shlex.quote(value)}" for name, value in command.env]
    if command.unset:
        words = ["env", *(f"-u {shlex.quote(name)}" for name in command.unset), *words]
    return " ".join([*words, *map(shlex.quote, command.argv)])


def _speculation_words(speculation: Speculation, draft: str | None) -> list[str]:
    if not speculation.enabled:
        return []
    words = ["--speculative-algorithm", speculation.algorithm]
    if draft and ALGORITHMS[speculation.algorithm].has_draft:
        words += ["--speculative-draft-model-path", draft]
    for flag, value in (
        ("--speculative-num-steps", speculation.num_steps),
        ("--speculative-eagle-topk", speculation.topk),
        ("--speculative-num-draft-tokens", speculation.num_draft_tokens),
    ):
        if value is not None:
            words += [flag, str(value)]
    return words
