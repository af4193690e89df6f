"""The values of a study file: what each kind accepts, and what to write instead of the rest.

Validators raise `PydanticCustomError` with messages for the user; `study_errors` adds key and line.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from search_spaces.algorithms import NAMES
from search_spaces.configuration import NO_SPECULATION, Value
from search_spaces.flags.flags import canonical_flag, canonical_flag_value
from search_spaces.metrics import LATENCIES, RATES
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.suggestions import nearest
from search_spaces.variables import canonical_value

"""Prompt sets that are built in (`runners.load`)."""

FixedValue = Value | tuple[Value, ...]
"""A flag's value in every launch; a flag that takes several words has several."""

LIMITS = LATENCIES
"""Upper bounds that an objective may set, in milliseconds of the server's own time."""

_MOST_STEPS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FLAG = re.compile(r"[a-z0-9][a-z0-9.-]*", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def wrong(message: str, at: str | int | None = None) -> PydanticCustomError:
    """An error whose message goes to the user as it is; `at` names the key or index below."""
    # Braces are pydantic's template syntax; the text travels through the context instead.
    return PydanticCustomError("study", "{text}", {"text": message, "at": at})


def _whole(value: object, at: str | int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"Must be a whole number, not {value!r}", at)
    return value


def _range(value: dict[str, object]) -> tuple[int, ...]:
    for key in value:
        if key not in {"from", "to", "step"}:
            raise wrong(f"Unknown key in a range; {nearest(key, ('from', 'to', 'step'))}", key)
    if "from" not in value or "to" not in value:
        raise wrong("A range needs both ends: {from: 1, to: 10}")
    first, last = _whole(value["from"], "from"), _whole(value["to"], "to")
    step = _whole(value.get("step", 1), "step")
    if step < 1:
        raise wrong(f"Must be at least 1, not {step}", "step")
    if last < first:
        raise wrong(f"The range is empty: from {first} to {last}; swap them", "to")
    if (last - first) // step >= _MOST_STEPS:
        raise wrong(f"The range has more than {_MOST_STEPS} values; make it smaller")
    return tuple(range(first, last + 1, step))


def _integers(value: object) -> tuple[int, ...]:
    if isinstance(value, dict):
        return _range(value)
    if isinstance(value, (list, tuple)):
        if not value:
            raise wrong("The list is empty; write at least one number, or leave the key out")
        return tuple(dict.fromkeys(_whole(item, index) for index, item in enumerate(value)))
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(
            f"Must be a whole number, a list such as [1, 2, 4] or a range such as "
            f"{{from: 1, to: 10}}, not {value!r}"
        )
    return (value,)


def _algorithm(value: object) -> str:
    if not isinstance(value, str):
        raise wrong(f"Must be the name of an algorithm, such as EAGLE3 or none, not {value!r}")
    if value.upper() not in {name.upper() for name in NAMES}:
        raise wrong(f"Unknown algorithm {value!r}; {nearest(value, NAMES)}")
    return NO_SPECULATION if value.lower() == NO_SPECULATION else value.upper()


def _flag_value(value: object) -> Value:
    if isinstance(value, (list, tuple)):
        raise wrong(
            "Must be one value, not a list; SGLang's flags of many words cannot be searched"
        )
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise wrong(f"Must be one value (text, number, true or null), not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(f"Must be a finite number, not {value!r}")
    return canonical_flag_value(value)


def _fixed_value(value: object) -> FixedValue:
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, (list, tuple)):
        return tuple(_flag_value(item) for item in value)
    return _flag_value(value)


def _env_value(value: object) -> str | None:
    if isinstance(value, bool):
        raise wrong(
            "YAML reads this as true or false; put the variable's text in quotes, "
            'such as "1", "no" or "off"'
        )
    if value is not None and not isinstance(value, (int, float, str)):
        raise wrong(f"Must be text in quotes, or null for a variable that is not set: {value!r}")
    if isinstance(value, str) and "\0" in value:
        raise wrong("An environment variable cannot hold a zero byte")
    return None if value is None else str(value)


def _as_yaml(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _choices(value: object) -> object:
    if value is None:
        raise wrong("Must be a list of choices; `null`, for every launch, belongs under `server`")
    if not isinstance(value, (list, tuple)):
        raise wrong(
            f"Must be a list of choices, such as [null, {_as_yaml(value)}]; a value for every "
            "launch belongs under `server`"
        )
    if not value:
        raise wrong("The list is empty; write at least one choice, or leave the key out")
    return value


def _distinct_choices(value: tuple[Value, ...]) -> tuple[Value, ...]:
    seen: dict[tuple[type, Value], Value] = {}
    for item in value:
        seen.setdefault((type(item), item), item)
    kept = tuple(seen.values())
    if len(set(kept)) < len(kept):
        # Python's 1, 1.0 and True are equal, so two servers would be taken for one.
        listed = ", ".join(_as_yaml(item) for item in kept)
        raise wrong(f"Holds values that differ only in kind, [{listed}]: keep one of them")
    return kept


def _flag_names(flags: dict[str, object]) -> dict[str, object]:
    out: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for name, value in flags.items():
        plain = canonical_flag(name)
        if not _FLAG.fullmatch(plain):
            raise wrong(f"{name!r} is not the name of a flag; write it like tp-size", name)
        if plain in out:
            raise wrong(f"The same flag as {spelled[plain]!r}; keep one of them", name)
        out[plain], spelled[plain] = value, name
    return out


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        plain = re.sub(r"\W", "_", name).lstrip("0123456789")
        hint = (
            f"; did you mean `{plain}`?" if _VARIABLE.fullmatch(plain) else ", such as NCCL_PROTO"
        )
        raise wrong(f"{name!r} is not the name of an environment variable{hint}")
    return name


def study_name_problem(name: str) -> str | None:
    """Why a study cannot have this name; `None` if it can."""
    if not _NAME.fullmatch(name):
        return "Must be a plain name of letters, digits, '.', '_' and '-', such as kimi"
    if name.endswith((".yaml", ".yml")):
        return "Must not end like a file, which commands would then look for; such as kimi"
    return None


def _study_name(name: str) -> str:
    if (problem := study_name_problem(name)) is not None:
        raise wrong(problem)
    return name


def _prompt_set(name: str) -> str:
    try:
        parse_prompt_name(name)
    except ValueError as error:
        raise wrong(str(error)) from None
    return name


def _limit(name: str) -> str:
    if name in RATES:
        raise wrong(f"Is a rate, which is maximized: write `objective: {{maximize: {name}}}`")
    if name not in LIMITS:
        raise wrong(f"Unknown limit; {nearest(name, LIMITS)}")
    return name


FlagNames = AfterValidator(_flag_names)
Algorithm = Annotated[str, PlainValidator(_algorithm)]
PromptSet = Annotated[str, AfterValidator(_prompt_set)]
Limit = Annotated[str, AfterValidator(_limit)]
Text = Annotated[str, Field(strict=True, min_length=1)]
StudyName = Annotated[str, Field(strict=True), AfterValidator(_study_name)]
# What a database column and a server's 32-bit lengths hold.
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Integers = Annotated[tuple[int, ...], PlainValidator(_integers)]
FlagValue = Annotated[Value, PlainValidator(_flag_value)]
# Any, so that whoever knows a flag reads its value without a cast; it is a FixedValue.
FixedFlagValue = Annotated[Any, PlainValidator(_fixed_value)]
EnvValue = Annotated[str | None, PlainValidator(_env_value)]
Variable = Annotated[str, AfterValidator(_variable)]
FlagChoices = Annotated[
    tuple[FlagValue, ...], BeforeValidator(_choices), AfterValidator(_distinct_choices)
]
EnvChoices = Annotated[
    tuple[EnvValue, ...], BeforeValidator(_choices), AfterValidator(_distinct_choices)
]


def _one_or_more(value: object) -> object:
    """A list as it is, anything else as a list of one; an empty list would match nothing."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise wrong("The list is empty; write at least one value, or leave the key out")
        return value
    return (value,)


def _one_spelling(env: dict[str, Any]) -> dict[str, Any]:
    """Values of known variables in their one spelling; what is wrong stays as it is."""

    def spell(name: str, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(spell(name, item) for item in value)
        return canonical_value(name, value) if isinstance(value, str) else value

    return {name: spell(name, value) for name, value in env.items()}


OneSpelling = AfterValidator(_one_spelling)
OneOrMoreAlgorithms = Annotated[tuple[Algorithm, ...], BeforeValidator(_one_or_more)]
OneOrMoreFlagValues = Annotated[tuple[FlagValue, ...], BeforeValidator(_one_or_more)]
OneOrMoreEnvValues = Annotated[tuple[EnvValue, ...], BeforeValidator(_one_or_more)]
