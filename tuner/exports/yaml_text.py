"""Write YAML that every reader parses alike: all text in double quotes, comments above."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = math.inf
"""Lines are not folded: a reader of them need not know YAML's rules for that."""


class _Quoting(yaml.SafeDumper):
    """Writes all text except keys in double quotes.

    Plain `yes`, `1e3` or `0o7` is text in one version of YAML and a value in another.
    """

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - the base's signature
        """Write no references to earlier values."""
        return True

    def represent_mapping(
        self,
        tag: str,
        mapping: Any,  # noqa: ANN401 - the base class's signature
        flow_style: bool | None = None,
    ) -> yaml.MappingNode:
        """Write keys without quotes if possible."""
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value.replace("-", "_").isidentifier():
                key.style = None
        return node


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Quoting.add_representer(str, _quoted)


def quoted(text: str) -> str:
    """`text` as a YAML scalar in double quotes on one line."""
    return yaml.dump(text, Dumper=_Quoting, width=WIDTH, allow_unicode=True).strip()


def dumped(data: Any, *, indent: int = 0) -> str:  # noqa: ANN401 - anything that JSON can hold
    """`data` as YAML in block style, in its order."""
    text = yaml.dump(
        data,
        Dumper=_Quoting,
        width=WIDTH,
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
    )
    return "".join(" " * indent + line + "\n" for line in text.splitlines())


def comments(lines: Iterable[str], *, indent: int = 0) -> str:
    """Lines as comments, without line breaks in a line (`tuner.exports.remarks.one_line`)."""
    return "".join(f"{' ' * indent}# {line}".rstrip() + "\n" for line in lines)
