"""Export as SGLang's `--config` file: flags as YAML, variables in comments.

Read in `srt/utils/server_args_config_parser.py` of SGLang 0.5.23: the value is written after its
flag by `str`, a list as several words, and `true` of a plain switch as the switch alone. Other
kinds of switches and `--lora-paths` are refused. The command line overrides the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search_spaces.flags.options import VERSIONS, options
from tuner.exports.exported import Secret
from tuner.exports.shell_script import quoted
from tuner.exports.yaml_text import comments, dumped

if TYPE_CHECKING:
    from tuner.exports.exported import Exported

EXECUTABLE = False


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    fits = _fitting(exported)
    inside = {name: _value(value) for name, value in exported.flags if name in fits}
    head = [*exported.remarks, *exported.changes]
    head += [f"NOTE: {note}" for note in exported.own_notes]
    line = command_line(exported)
    if not line.isprintable():
        line = "(a value cannot be written in a comment; --format shell has the variables)"
    head += [
        "",
        "Config file of SGLang. A config file has no environment variables; start the server with",
        "",
    ]
    head += [f"  {line}", ""]
    if exported.secrets:
        head.append(f"Set first: {', '.join(exported.secrets)}")
    return comments(head) + dumped(inside)


def command_line(exported: Exported, file: str = "FILE.yaml") -> str:
    """Command that reads the file, with everything that the file cannot express."""
    words = [f"-u {name}" for name in exported.unset]
    words += [f"{name}={quoted(value)}" for name, value in exported.env]
    fits = _fitting(exported)
    lines = zip(exported.flags, exported.flag_lines(), strict=True)
    outside = [word for (name, _), line in lines if name not in fits for word in line]
    start = [*(["env"] if words else []), *words, *map(quoted, exported.start)]
    return " ".join([*start, "--config", quoted(file), *map(quoted, outside)])


def _fitting(exported: Exported) -> frozenset[str]:
    """Flags that the file can express in the measured version."""
    version = exported.facts.get("sglang_version")
    known = options(next((v for v in VERSIONS if v == version), VERSIONS[-1]))

    def fits(name: str, value: Any) -> bool:  # noqa: ANN401 - any value of a study file
        action = known[name].action if name in known else ""
        if value is True:
            return action == "_StoreTrueAction"
        empty = isinstance(value, list | tuple) and not value
        return not (isinstance(value, Secret) or action or empty)

    return frozenset(name for name, value in exported.flags if fits(name, value))


def _value(value: Any) -> Any:  # noqa: ANN401 - any value of a study file
    """Write fractions as text, so that SGLang reads the value of the command line."""
    if value is True or isinstance(value, int):
        return value
    return [str(item) for item in value] if isinstance(value, list | tuple) else str(value)
