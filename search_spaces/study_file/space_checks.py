"""Check relations between the keys of `model`, `server` and `space` in a study file.

Each check yields the path of a key and a message that says what is wrong and what to write.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import ALGORITHMS, Shape, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flag_values import flag_problem
from search_spaces.flags.flags import BELONGS_ELSEWHERE, canonical_flag
from search_spaces.flags.speculation_flags import ALGORITHM, NUMBER_FLAGS
from search_spaces.nccl.values import BOUNDED, crossed_bounds, nothing_left, shadowed
from search_spaces.problems import nearest
from search_spaces.secrets import (
    holds_token,
    is_export_only,
    is_reference,
    is_secret,
    redact_text,
    reference,
)
from search_spaces.space.conditions import canonical_env_text, contains, format_value
from search_spaces.variables import value_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from search_spaces.study_file.document import KeyPath
    from search_spaces.study_file.study import Model, Pattern, Server, SpaceSpec, SubSpace
    from search_spaces.study_file.values import FixedValue

    Found = tuple[KeyPath, str]

_NEEDS_DRAFT = {"EAGLE", *(name for name, a in ALGORITHMS.items() if a.needs_draft)}
_MINIMUM = {"num_steps": 1, "topk": 1, "num_draft_tokens": 2}
_SERVER_NUMBERS = {"tp-size": ("of GPUs", 4096), "port": ("from 1 to 65535", 65535)}
_NOT_STORED = "would be stored with the results"


def check_space(
    model: Model | None,
    server: Server | None,
    space: SpaceSpec | None,
    data: object,
    *,
    stored: bool,
) -> Iterator[Found]:
    """Check everything between these sections.

    Args:
        model: `None` where the section cannot be read; its checks are then skipped.
        server: As `model`.
        space: As `model`.
        data: The file's values as written.
        stored: Whether the study is stored already; its secrets are then accepted.
    """
    if server is not None:
        yield from _server(server)
        yield from _fixed_flags(server.flags, ("server", "flags"), data)
    if space is not None:
        yield from _space(space)
        yield from _flag_choices(space.flags, ("space", "flags"), data)
        for index, part in enumerate(space.speculation):
            yield from _flag_choices(part.flags, ("space", "speculation", index, "flags"), data)
    if not stored:
        yield from _secrets(server, space)
    if server is not None and space is not None:
        yield from _fixed_and_searched(server, space)
        yield from _draft_tp(server, space)
        yield from _conditions(server, space)
    if model is not None and space is not None:
        yield from _drafts(model, space)
    fixed = {} if server is None else server.env
    searched = {} if space is None else space.env
    yield from _env_values(fixed, searched)
    yield from _env_pairs(fixed, searched)


# Server and sub-spaces


def _server(server: Server) -> Iterator[Found]:
    for name in server.flags:
        if name in BELONGS_ELSEWHERE:
            yield ("server", "flags", name), f"Not allowed here; {BELONGS_ELSEWHERE[name]}"
    for name, (unit, most) in _SERVER_NUMBERS.items():
        number = server.flags.get(name, 1)
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            yield ("server", "flags", name), f"Must be a whole number {unit}, not {number!r}"
    yield from _reserved("server", server.env)


def _reserved(section: str, env: Iterable[str]) -> Iterator[Found]:
    for name in env:
        if name == "TUNER_LAUNCH":
            yield (
                (section, "env", name),
                "Reserved: the tuner marks its launches with it; remove it",
            )


def _space(space: SpaceSpec) -> Iterator[Found]:
    yield from _searchable(space.flags, ("space", "flags"))
    yield from _reserved("space", space.env)
    for index, part in enumerate(space.speculation):
        at: KeyPath = ("space", "speculation", index)
        for key, least in _MINIMUM.items():
            values = getattr(part, key)
            if values is not None and min(values) < least:
                hint = "; for no speculation write `algorithm: none`" if key == "num_steps" else ""
                yield (*at, key), f"Must be at least {least}, not {min(values)}{hint}"
        yield from _sub_space(part, at)
        yield from _searchable(part.flags, (*at, "flags"))
        for name in part.flags:
            if name in space.flags:
                message = "Also under `space.flags`, which applies to all sub-spaces; remove one"
                yield (*at, "flags", name), message
            elif name.startswith("speculative-") and part.algorithm == NO_SPECULATION:
                yield (*at, "flags", name), "SGLang ignores it without an algorithm; remove it"


def _searchable(flags: Iterable[str], at: KeyPath) -> Iterator[Found]:
    for name in flags:
        if name in BELONGS_ELSEWHERE:
            yield (*at, name), f"Not allowed here; {BELONGS_ELSEWHERE[name]}"
        elif is_export_only(name):
            message = (
                "Cannot be searched: trials never get this flag; write it under `server.flags` for "
                "the exported command"
            )
            yield (*at, name), message


def _sub_space(part: SubSpace, at: KeyPath) -> Iterator[Found]:
    given = [key for key in _MINIMUM if getattr(part, key) is not None]
    shape = ALGORITHMS[part.canonical_algorithm].shape
    if shape is Shape.NONE:
        for key in given:
            yield (*at, key), "`algorithm: none` takes no numbers; remove it"
    if shape is not Shape.TREE or not given:
        return
    examples = {"num_steps": "num_steps: {from: 1, to: 5}", "topk": "topk: 1"}
    for key, example in examples.items():
        if key not in given:
            message = (
                f"{key} is missing: SGLang takes num_steps, topk and num_draft_tokens all from its "
                f"defaults or none of them; write `{example}`"
            )
            yield at, message
    if part.topk is not None and max(part.topk) > 1 and "num_draft_tokens" not in given:
        message = (
            f"num_draft_tokens is missing: topk {max(part.topk)} drafts a tree, and SGLang needs "
            "its size; write `num_draft_tokens: [4, 8]`"
        )
        yield at, message


def _fixed_and_searched(server: Server, space: SpaceSpec) -> Iterator[Found]:
    searched: list[tuple[str, KeyPath]] = [
        (section, ("space", section, name))
        for section in ("flags", "env")
        for name in getattr(space, section)
    ]
    for index, part in enumerate(space.speculation):
        searched += [("flags", ("space", "speculation", index, "flags", n)) for n in part.flags]
    for section, path in searched:
        if path[-1] in getattr(server, section):
            message = f"Also under `server.{section}`, which fixes it in every launch; remove one"
            yield path, message


def _draft_tp(server: Server, space: SpaceSpec) -> Iterator[Found]:
    tp = server.flags.get("tp-size", 1)
    if "tp-size" in space.tuned_flags or not isinstance(tp, int) or tp < 1:
        return
    for size in space.draft_tp or ():
        if size < 1 or tp % size:
            valid = ", ".join(str(n) for n in range(1, min(tp, 64) + 1) if tp % n == 0)
            message = f"{size} does not divide the target's tp-size {tp}; use {valid}"
            yield ("space", "draft_tp"), message


def _drafts(model: Model, space: SpaceSpec) -> Iterator[Found]:
    for index, part in enumerate(space.speculation):
        if model.draft is None and part.algorithm in _NEEDS_DRAFT:
            hint = "; for a model with MTP layers write NEXTN" if part.algorithm == "EAGLE" else ""
            yield (
                ("space", "speculation", index, "algorithm"),
                f"{part.algorithm} needs a draft model: write `model: {{draft: ...}}`{hint}",
            )


# Flag values


def _fixed_flags(flags: Mapping[str, FixedValue], at: KeyPath, data: object) -> Iterator[Found]:
    written = _written(data, at)
    for name, value in flags.items():
        if name not in BELONGS_ELSEWHERE and name not in _SERVER_NUMBERS:
            problem = flag_problem(name, value, written.get(name))
            if problem is not None:
                yield (*at, name), problem


def _flag_choices(
    flags: Mapping[str, tuple[FixedValue, ...]], at: KeyPath, data: object
) -> Iterator[Found]:
    written = _written(data, at)
    for name, values in flags.items():
        if name in BELONGS_ELSEWHERE:
            continue
        choices: Any = written.get(name)
        # Repeated choices were removed from `values`; indices then differ from the file's.
        same = isinstance(choices, list) and len(choices) == len(values)
        for index, value in enumerate(values):
            problem = flag_problem(name, value, choices[index] if same else None)
            if problem is not None:
                yield (*at, name, index), problem


def _written(data: Any, at: KeyPath) -> dict[str, object]:  # noqa: ANN401 - YAML
    """The values below a path as the file spells them, by canonical flag."""
    for part in at:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
    if not isinstance(data, dict):
        return {}
    return {canonical_flag(str(name)): value for name, value in data.items()}


# Environment variables


def _env_values(
    fixed: Mapping[str, str | None], searched: Mapping[str, tuple[str | None, ...]]
) -> Iterator[Found]:
    for name, value in fixed.items():
        if (problem := value_problem(name, value)) is not None:
            yield ("server", "env", name), problem
    for name, values in searched.items():
        for index, value in enumerate(values):
            at: KeyPath = ("space", "env", name, index)
            if (problem := value_problem(name, value)) is not None:
                yield at, problem
            elif value in values[:index]:
                yield at, f"Same value as choice {values.index(value) + 1} ({value}); remove one"


def _env_pairs(
    fixed: Mapping[str, str | None], searched: Mapping[str, tuple[str | None, ...]]
) -> Iterator[Found]:
    always = {name: value for name, value in fixed.items() if value is not None}
    for least, most, message in crossed_bounds(always):
        last = max((least, most), key=list(fixed).index)
        yield ("server", "env", last), f"{message}; write a minimum that is not above the maximum"
    if (lost := nothing_left(always)) is not None:
        yield ("server", "env", "NCCL_PROTO"), f"{lost}; remove one of them"
    for name in searched:
        for loser, winner in shadowed({**always, name: "1"}):
            if loser == name:
                message = f"NCCL ignores it when `server.env.{winner}` is set; remove one of them"
                yield ("space", "env", name), message
    yield from _always_crossed(always, searched)
    levels = searched.get("NCCL_P2P_LEVEL", ())
    if "1" in searched.get("NCCL_P2P_DISABLE", ()) and "LOC" in levels:
        message = "LOC is the same server as NCCL_P2P_DISABLE=1; remove LOC"
        yield ("space", "env", "NCCL_P2P_LEVEL", levels.index("LOC")), message


def _always_crossed(
    always: Mapping[str, str], searched: Mapping[str, tuple[str | None, ...]]
) -> Iterator[Found]:
    """Find bounds that cross in every combination of choices."""
    bounded = [name for name in searched if name in BOUNDED]
    if not bounded or any(True for _ in crossed_bounds(always)):
        return
    message = ""
    for values in itertools.product(*(searched[name] for name in bounded)):
        chosen = {name: v for name, v in zip(bounded, values, strict=True) if v is not None}
        crossed = next(crossed_bounds({**always, **chosen}), None)
        if crossed is None:
            return
        message = crossed[-1]
    yield ("space", "env", bounded[-1]), f"No choice is valid: {message}"


# Secrets


def _secrets(server: Server | None, space: SpaceSpec | None) -> Iterator[Found]:
    """Find literal secrets; the messages do not show them."""
    if server is not None:
        yield from _secrets_of(server.flags, ("server", "flags"))
        yield from _secrets_of(server.env, ("server", "env"))
        for index, word in enumerate(server.prefix):
            if redact_text(word) != word:
                message = (
                    f"Contains a secret, which {_NOT_STORED}: write `NAME: $NAME` under "
                    "`server.env`, which reads the variable from the tuner's environment"
                )
                yield ("server", "prefix", index), message
    if space is not None:
        yield from _secrets_of(space.flags, ("space", "flags"))
        yield from _secrets_of(space.env, ("space", "env"))
        for index, part in enumerate(space.speculation):
            yield from _secrets_of(part.flags, ("space", "speculation", index, "flags"))
        for index, condition in enumerate(space.conditions):
            for key in ("when", "then"):
                at: KeyPath = ("space", "conditions", index, key)
                yield from _secrets_of(getattr(condition, key).flags, (*at, "flags"))
                yield from _secrets_of(getattr(condition, key).env, (*at, "env"))


def _secrets_of(values: Mapping[str, Any], at: KeyPath) -> Iterator[Found]:
    for name, value in values.items():
        several = isinstance(value, tuple)
        for index, given in enumerate(value if several else (value,)):
            if (message := _secret_problem(name, given)) is not None:
                yield (*at, name, index) if several else (*at, name), message


def _secret_problem(name: str, value: object) -> str | None:
    if value is None or value is False or value == "" or is_reference(value):
        return None
    if is_secret(name):
        return (
            f"Is a secret, which {_NOT_STORED}: write `{name}: {reference(name)}`, the name of an "
            "environment variable"
        )
    if redact_text(str(value)) == str(value):
        return None
    return (
        f"Contains a secret, which {_NOT_STORED}: remove it, and pass it in an environment "
        "variable (`server.env: {HF_TOKEN: $HF_TOKEN}`)"
    )


def tokens_in(text: str) -> Iterator[tuple[int, str]]:
    """Find lines (counted from 1) of a file that look like they hold an access token."""
    for number, line in enumerate(text.splitlines(), start=1):
        if holds_token(line):
            yield number, f"Looks like an access token or password, which {_NOT_STORED}: remove it"


# Conditions


def _conditions(server: Server, space: SpaceSpec) -> Iterator[Found]:
    """Find algorithms, flags, variables and values that no configuration of the study has."""
    for index, condition in enumerate(space.conditions):
        at: KeyPath = ("space", "conditions", index)
        if not condition.then.model_fields_set:
            yield (*at, "then"), "Requires nothing; write what must hold, such as `{topk: 1}`"
        for key, pattern in (("when", condition.when), ("then", condition.then)):
            yield from _pattern(pattern, (*at, key), server, space)


def _pattern(pattern: Pattern, at: KeyPath, server: Server, space: SpaceSpec) -> Iterator[Found]:
    algorithms = {part.canonical_algorithm: part.algorithm for part in space.speculation}
    for name in pattern.algorithm or ():
        if canonical_algorithm(name) not in algorithms:
            valid = ", ".join(algorithms.values())
            yield (*at, "algorithm"), f"{name} is not an algorithm of this study; use {valid}"
    choices: dict[str, tuple[FixedValue, ...]] = {**space.flags}
    for part in space.speculation:
        for name, values in part.flags.items():
            # The flag is not given in the other sub-spaces.
            choices[name] = (*choices.get(name, ()), *values, None)
    for name in choices:
        if name.startswith("speculative-"):
            choices[name] += (None,)  # SGLang ignores the flag without an algorithm
    for name, wanted in pattern.flags.items():
        if name in BELONGS_ELSEWHERE and name not in server.flags:
            key = "algorithm" if name == ALGORITHM else NUMBER_FLAGS.get(name)
            message = (
                "Is the same in every configuration; remove it"
                if key is None
                else f"Write `{key}` next to `flags`"
            )
            yield (*at, "flags", name), message
        else:
            yield from _condition_values((*at, "flags", name), wanted, server.flags, choices)
    varied = {
        name: (*(canonical_env_text(name, value) for value in values), None)
        for name, values in space.env.items()
    }
    fixed = {name: canonical_env_text(name, value) for name, value in server.env.items()}
    for name, wanted in pattern.env.items():
        canonical = [canonical_env_text(name, value) for value in wanted]
        yield from _condition_values((*at, "env", name), canonical, fixed, varied)


def _condition_values(
    at: KeyPath,
    wanted: Sequence[FixedValue],
    fixed: Mapping[str, FixedValue],
    varied: Mapping[str, Sequence[FixedValue]],
) -> Iterator[Found]:
    section, name = str(at[-2]), str(at[-1])
    if name not in varied and name not in fixed:
        known = (*varied, *fixed)
        hint = f"; {nearest(name, known)}" if known else ""
        vary = f"to search it, write its choices under `space.{section}`"
        yield at, f"The study does not set it{hint} ({vary})"
        return
    possible = varied[name] if name in varied else (fixed[name],)
    for value in wanted:
        if not contains(possible, value):
            choices = ", ".join(dict.fromkeys(map(_yaml, possible)))
            yield at, f"Is never {_yaml(value)} in this study; use {choices}"


def _yaml(value: FixedValue) -> str:
    return "null" if value is None else format_value(value)
