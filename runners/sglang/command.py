"""Build SGLang's command line of a configuration, for a trial or for export."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.base import LaunchCommand, with_variables
from search_spaces.algorithms import ALGORITHMS
from search_spaces.flags.flags import canonical_flag
from search_spaces.launch_commands.prefixes import prefix_here
from search_spaces.secrets import is_export_only, is_reference, is_secret, redact, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from search_spaces.configuration import Configuration, Speculation
    from search_spaces.study_file.study import Study

SGLANG_MODULE = "sglang.launch_server"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30000
"""SGLang's own defaults (server_args.py, 0.5.9 to 0.5.23)."""

_DRAFT_FLAG = "speculative-draft-model-path"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


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
    """Build the command that starts `configuration`.

    Without `host`, the command is for export: it has the study's keys, TLS and prefix, and
    references to secrets. With `host`, it is for a trial: without keys, and with the secrets.

    Args:
        study: Has the fixed flags and variables.
        configuration: Has the varied flags and variables.
        python: The interpreter.
        module: Module to run: SGLang, or the simulated server.
        host: Address of a trial. [default: the study's, or SGLang's]
        port: Port of a trial. [default: the study's, or SGLang's]
        extra: Words after all flags.
        env: Variables that override all others (`None`: removed).
    """
    argv = [python, "-m", module]
    for name, value in server_flags(study, configuration, host=host, port=port).items():
        argv += flag_words(name, value)
    argv += extra
    variables = {**study.server.env, **dict(configuration.env), **(env or {})}
    command = with_variables(argv, variables, fill_in=host is not None)
    if host is not None or module != SGLANG_MODULE:
        return command  # a trial's server environment adds the prefix
    names = {*dict(command.env), *command.unset}
    return replace(command, prefix=prefix_here(study.server.prefix, names))


def server_flags(
    study: Study,
    configuration: Configuration,
    *,
    host: str | None = None,
    port: int | None = None,
) -> dict[str, Any]:
    """Flags of a configuration by name without dashes; see `sglang_command`.

    The order is fixed: model, speculation, fixed flags of the study, varied flags, address. A flag
    of the configuration replaces a fixed one; `None` removes it.
    """
    given = {**study.server.flags, **dict(configuration.flags)}
    own_host, own_port = given.pop("host", None), given.pop("port", None)
    model = given.pop("model-path", None) or study.model.path
    draft = given.pop(_DRAFT_FLAG, None) or study.model.draft
    flags = {"model-path": model, **_speculation_flags(configuration.speculation, draft)}
    flags |= {
        name: value
        for name, value in given.items()
        if value is not None and value is not False and (host is None or not is_export_only(name))
    }
    flags["host"] = str(host or own_host or DEFAULT_HOST)
    flags["port"] = port or own_port or DEFAULT_PORT
    return flags


def redacted(command: LaunchCommand) -> LaunchCommand:
    """Replace each secret by `$NAME`, for storage and display. Idempotent."""
    argv: list[str] = []
    secret_flag: str | None = None
    for word in command.argv:
        argv.append(_redacted_word(word) if secret_flag is None else redact(secret_flag, word))
        secret_flag = word if _takes_secret(word) else None
    env = tuple((name, _redacted_value(name, value)) for name, value in command.env)
    prefix = tuple(map(_redacted_word, command.prefix))
    return replace(command, argv=tuple(argv), env=env, prefix=prefix)


def _takes_secret(word: str) -> bool:
    """Whether the next word is a secret."""
    return word.startswith("--") and "=" not in word and is_secret(word)


def _redacted_word(word: str) -> str:
    flag, equals, value = word.partition("=")
    if word.startswith("--") and equals and is_secret(flag):
        return f"{flag}={redact(flag, value)}"
    if assignment := _ASSIGNMENT.fullmatch(word):
        return f"{assignment[1]}={_redacted_value(assignment[1], assignment[2])}"
    return redact_text(word)


def _redacted_value(name: str, value: str) -> str:
    return str(redact(name, value)) if is_secret(name) else redact_text(value)


def flag_words(name: str, value: Any) -> list[str]:  # noqa: ANN401 - any value that YAML can hold
    """Words of a flag and its value."""
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
    """Name of a flag in `/server_info`."""
    return canonical_flag(name).replace("-", "_")


def tp_size(study: Study, configuration: Configuration | None = None) -> int:
    """Tensor-parallel size of the target, for a configuration or for the study."""
    flags = {**study.server.flags, **dict(configuration.flags if configuration else ())}
    return int(flags.get("tp-size") or 1)


def shell(command: LaunchCommand) -> str:
    """One line for a POSIX shell, with secrets as `"$NAME"`."""
    shown = redacted(command)
    words = [f"{name}={_quoted(value, secret=is_secret(name))}" for name, value in shown.env]
    if shown.unset:
        words = ["env", *(f"-u {shlex.quote(name)}" for name in shown.unset), *words]
    words += map(shlex.quote, shown.prefix)
    before = ""
    for word in shown.argv:
        words.append(_quoted(word, secret=_takes_secret(before)))
        before = word
    return " ".join(words)


def _quoted(word: str, *, secret: bool) -> str:
    return f'"{word}"' if secret and is_reference(word) else shlex.quote(word)


def _speculation_flags(speculation: Speculation, draft: str | None) -> dict[str, Any]:
    if not speculation.enabled:
        return {}
    has_draft = ALGORITHMS[speculation.algorithm].has_draft
    flags = {
        "speculative-algorithm": speculation.algorithm,
        _DRAFT_FLAG: draft if has_draft else None,
        "speculative-num-steps": speculation.num_steps,
        "speculative-eagle-topk": speculation.topk,
        "speculative-num-draft-tokens": speculation.num_draft_tokens,
    }
    return {name: value for name, value in flags.items() if value is not None}
