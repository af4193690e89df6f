"""Read YAML into plain values with line numbers.

The dialect is PyYAML's YAML 1.1 with three exceptions: `12:30` and `1_000` are text, and `1e-3` is
a number. `Document.texts` keeps the original text of each scalar.
"""

from __future__ import annotations

import re
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from search_spaces.metrics import LATENCIES
from search_spaces.problems import Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_TAG = "tag:yaml.org,2002:"

MOST_VALUES = 100_000
"""Limit against nested aliases, which can stand for millions of values."""


class _TooManyValuesError(Exception):
    """The document has more than `MOST_VALUES` values."""


@dataclass(slots=True)
class Document:
    """A YAML document as plain values.

    Attributes:
        data: Dictionaries, lists and scalars.
        lines: Line of every path, from 1.
        texts: Original text of every plain scalar.
        problems: Syntax errors, duplicate keys, keys that are not text.
    """

    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: KeyPath) -> int:
        """Return the line of a path, or of the nearest value around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: KeyPath) -> str:
    """Format a path: `space.speculation[1].topk`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def read_yaml(text: str) -> Document:
    """Read one YAML document; errors go to `problems`."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        document.problems.append(Problem("", None, "Nested too deeply"))
        return document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        message = f"Not YAML: {what}"
        begun = getattr(error, "context_mark", None)
        if mark is not None and begun is not None and begun.line != mark.line:
            message += f", {error.context} that begins on line {begun.line + 1}"  # type: ignore[attr-defined]
        if re.search(r"\btabs?\b|'\\t'", message):
            message += "; indent with spaces"
        document.problems.append(Problem("", mark.line + 1 if mark else None, message))
        return document
    if node is not None:
        try:
            document.data = _value(node, (), document, ())
        except _TooManyValuesError:
            message = f"Aliases expand to more than {MOST_VALUES:,} values; write fewer"
            document.problems[:] = [Problem("", None, message)]
    return document


def _value(
    node: yaml.Node, path: KeyPath, document: Document, around: tuple[yaml.Node, ...]
) -> object:
    if len(document.lines) > MOST_VALUES:
        raise _TooManyValuesError
    document.lines.setdefault(path, node.start_mark.line + 1)
    if any(node is outer for outer in around):
        document.problems.append(
            Problem(dotted(path), node.start_mark.line + 1, "This alias contains itself; remove it")
        )
        return None
    around = (*around, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document, around)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*path, index), document, around) for index, item in enumerate(node.value)
        ]
    return _scalar(node, path, document)


def _mapping(
    node: yaml.MappingNode, path: KeyPath, document: Document, around: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(
                Problem(dotted(path), line, "A key must be text, not a list or a mapping")
            )
            continue
        key = str(key_node.value)
        here = (*path, key)
        if key in out:
            first = document.lines[here]
            document.problems.append(
                Problem(dotted(here), line, f"Duplicate key (first on line {first}); remove one")
            )
            continue
        document.lines[here] = line
        out[key] = _value(value_node, here, document, around)
    return out


def _scalar(node: yaml.Node, path: KeyPath, document: Document) -> object:
    text = str(node.value)
    if getattr(node, "style", None) in {"'", '"', "|", ">"}:
        return text
    document.texts[path] = text
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in {"yes", "true", "on"}
    if kind == "int" and _INT.fullmatch(text):
        return int(text)
    if (kind == "float" and _FLOAT.fullmatch(text)) or _EXPONENT.fullmatch(text):
        return float(text)
    return text


_HINTS = {
    "budget.trials": "write `launches`: the budget counts launches",
    "objective.goodput": "write it under `workload`, and `maximize: goodput_request_s` here",
    "goodput": "write it under `workload`",
    "workload.request_rate": "write it as `points: [{request_rate: 4, requests: 100}]`",
    "workload.trace": "write it as `points: [{trace: arrivals.jsonl}]`",
    "workload.points[].rate": "did you mean `request_rate`?",
    "workload.top_p": "write it as `sampling: {top_p: 0.95}`",
    "workload.top_k": "write it as `sampling: {top_k: 40}`",
    "workload.min_p": "write it as `sampling: {min_p: 0.05}`",
    "workload.ignore_eos": "to let the model end answers write `natural_length: true`",
    "budget.minutes": "write `hours: 0.5`",
    "model.name": "write `path`",
    "server.model": "write it as `model: {path: ...}` at the top",
    "draft": "write it as `model: {draft: ...}`",
    "name": "write `study`",
    "flags": "write it under `server` (fixed) or `space` (searched)",
    "env": "write it under `server` (fixed) or `space` (searched)",
    "speculation": "write it under `space`",
    "concurrency": "write it as `workload: {points: [{concurrency: 1}]}`",
    "workload.concurrency": "write it as `points: [{concurrency: 1}]`",
    "space.speculation[].steps": "did you mean `num_steps`?",
    "space.speculation[].draft_tp": "write it under `space`, for all sub-spaces",
}

_EXAMPLES = {
    "study": "study: kimi",
    "model": "model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}",
    "model.path": "path: moonshotai/Kimi-K2.5",
    "server": "server: {flags: {tp-size: 8}, env: {}}",
    "server.flags": "flags: {tp-size: 8}",
    "server.env": 'env: {OMP_NUM_THREADS: "1"}',
    "server.prefix": "prefix: [docker, exec, sglang]",
    "space": "space: {speculation: [{algorithm: none}]}",
    "space.speculation": (
        "speculation: [{algorithm: none}, "
        "{algorithm: EAGLE3, num_steps: {from: 1, to: 5}, topk: 1}]"
    ),
    "space.speculation[]": "{algorithm: EAGLE3, num_steps: {from: 1, to: 5}, topk: 1}",
    "space.speculation[].algorithm": "algorithm: EAGLE3",
    "space.flags": "flags: {attention-backend: [fa3, flashinfer]}",
    "space.env": "env: {NCCL_PROTO: [null, LL, LL128, Simple]}",
    "workload": "workload: {prompts: {chat: 0.5, code: 0.5}, output_tokens: 256}",
    "workload.prompts": "prompts: {chat: 0.5, code: 0.5}",
    "workload.output_tokens": "output_tokens: 256",
    "workload.output_tokens.mean": "output_tokens: {mean: 256, spread: 0.5}",
    "workload.points": "points: [{concurrency: 1}]",
    "workload.points[]": "{concurrency: 1}",
    "workload.points[].concurrency": "concurrency: 1",
    "workload.points[].request_rate": "request_rate: 4",
    "workload.points[].trace": "trace: arrivals.jsonl",
    "workload.sampling": "sampling: {top_p: 0.95, top_k: 40}",
    "workload.natural_length": "natural_length: true",
    "workload.shared_prefix": "shared_prefix: {tokens: 512, groups: 4}",
    "workload.shared_prefix.tokens": "tokens: 512",
    "workload.goodput": "goodput: {ttft_ms: 500, tpot_ms: 50}",
    "workload.goodput.ttft_ms": "ttft_ms: 500",
    "workload.request_timeout_s": "request_timeout_s: 120",
    "objective": "objective: {maximize: output_tok_s, subject_to: {ttft_p95_ms: 2000}}",
    "objective.subject_to": "subject_to: {ttft_p95_ms: 2000}",
    "budget": "budget: {launches: 24, hours: 6}",
    "budget.launches": "launches: 24",
    "budget.hours": "hours: 6",
    "production": 'production: {command: "python -m sglang.launch_server ..."}',
    "production.command": 'command: "python -m sglang.launch_server ..."',
    "space.conditions": "conditions: [{when: {topk: 1}, then: {flags: {page-size: 64}}}]",
    "space.conditions[]": "{when: {topk: 1}, then: {flags: {page-size: 64}}}",
    "space.conditions[].when": "when: {algorithm: EAGLE3, topk: 1}",
    "space.conditions[].then": "then: {flags: {page-size: 64}}",
    "simulated": "simulated: {profile: kimi, time_scale: 10.0}",
    "simulated_acceptance": "simulated_acceptance: true",
}

_REMEDIES = {
    "workload.points[].weight": "remove the point, or write a share such as `weight: 0.5`",
    "workload.prompts.": "remove it, or write a share such as 0.5",
    "budget.hours": "remove it for no limit",
    "objective.subject_to.": "remove it for no limit",
    "simulated.time_scale": "write 1 for real time, 10 for ten times faster",
}
"""Remedies for numbers that are too small; a final dot stands for any key below."""

_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}


def problems_of(
    errors: Sequence[Mapping[str, Any]], root: type[BaseModel], document: Document | None
) -> list[Problem]:
    """Convert pydantic's `errors()` to problems."""
    out = []
    deeper = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    for error in errors:
        if error["type"] == "too_short" and error["loc"] in deeper:
            continue  # the list only looks empty because all its items are wrong
        path: KeyPath = tuple(part for part in error["loc"] if part != "[key]")
        if (at := (error.get("ctx") or {}).get("at")) is not None:
            path = (*path, at)
        if document is not None:
            path = _written(path, document.data)
        line = document.line(path) if document else None
        out.append(Problem(dotted(path), line, _message(error, path, root)))
    return out


def _written(path: KeyPath, data: object) -> KeyPath:
    """Shorten a path to the value in the file: a number may stand for `{mean: N}`."""
    for depth, part in enumerate(path):
        if isinstance(data, dict):
            data = data.get(part, {})
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part] if part < len(data) else {}
        else:  # a list of one item may be written as the item
            return path[:depth] if isinstance(part, str) else path
    return path


_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _message(error: Mapping[str, Any], path: KeyPath, root: type[BaseModel]) -> str:
    kind, context, value = error["type"], error.get("ctx") or {}, error.get("input")
    pattern = dotted(tuple("[]" if isinstance(part, int) else part for part in path))
    pattern = pattern.replace(".[]", "[]")
    example = f", such as `{_EXAMPLES[pattern]}`" if pattern in _EXAMPLES else ""
    given = "nothing" if value is None else repr(value)
    match kind:
        case "study":
            message = str(context["text"])
        case "extra_forbidden":
            hint = _HINTS.get(pattern) or nearest(str(path[-1]), _keys_at(root, path[:-1]))
            message = f"Unknown key; {hint}"
        case "missing":
            message = f"Missing{example}"
        case "string_too_short" | "too_short":
            message = f"Must not be empty{example}"
        case "literal_error":
            message = f"Must be {context['expected']}, not {given}{_suggestion(value, context)}"
        case "greater_than_equal" | "less_than_equal" | "less_than":
            words, bound = _BOUNDS[kind]
            message = f"Must be {words} {context[bound]:.10g}, not {given}"
        case "greater_than":
            remedy = _REMEDIES.get(pattern) or _REMEDIES.get(pattern.rpartition(".")[0] + ".")
            message = f"Must be more than {context['gt']:g}, not {given}"
            message += f"; {remedy}" if remedy else ""
        case _ if kind in _KINDS:
            message = f"Must be {_KINDS[kind]}{example}, not {given}"
        case _:
            message = f"{error['msg']}{example}"
    return message


def _suggestion(value: object, context: Mapping[str, Any]) -> str:
    """Suggest a valid word."""
    if value in LATENCIES:
        return f"; to minimize a latency write `minimize: {value}`"
    if not isinstance(value, str):
        return ""
    words = tuple(re.findall(r"'([^']+)'", context["expected"]))
    hint = nearest(value, words)
    return f"; {hint}" if hint.startswith("did you mean") else ""


def _keys_at(root: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    model: Any = root
    for part in path:
        if isinstance(part, int):
            continue
        by_key = {field.alias or name: field for name, field in model.model_fields.items()}
        model = _model_in(by_key[str(part)].annotation)
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, types.UnionType, tuple}:
        for inner in get_args(annotation):
            if (found := _model_in(inner)) is not None:
                return found
    return None
