"""Turn pydantic's errors into problems with key, line and an example."""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from pydantic import BaseModel

from search_spaces.metrics import LATENCIES
from search_spaces.problems import Problem, nearest
from search_spaces.study_file.yaml_nodes import Document, Path, dotted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        path: Path = tuple(part for part in error["loc"] if part != "[key]")
        if (at := (error.get("ctx") or {}).get("at")) is not None:
            path = (*path, at)
        if document is not None:
            path = _written(path, document.data)
        line = document.line(path) if document else None
        out.append(Problem(dotted(path), line, _message(error, path, root)))
    return out


def _written(path: Path, data: object) -> Path:
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


def _message(error: Mapping[str, Any], path: Path, root: type[BaseModel]) -> str:
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


def _keys_at(root: type[BaseModel], path: Path) -> tuple[str, ...]:
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
