"""Types of the values in a study file, with validators.

Validators raise `wrong(message)`; `search_spaces.study_file.document` adds key and line.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from search_spaces.algorithms import NAMES
from search_spaces.configuration import NO_SPECULATION, Value
from search_spaces.flags.flags import canonical_flag, canonical_flag_value
from search_spaces.metrics import LATENCIES, RATES
from search_spaces.problems import nearest
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.variables import canonical_value

FixedValue = Value | tuple[Value, ...]
"""A flag's value in every launch; a tuple for a flag of several words."""

LIMITS = LATENCIES
"""Latencies that an objective can limit or minimize, in milliseconds."""

_MOST_STEPS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FLAG = re.compile(r"[a-z0-9][a-z0-9.-]*", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def wrong(message: str, at: str | int | None = None) -> PydanticCustomError:
    """Build an error with a message for the user; `at` is the key or index below the value."""
    # Pydantic formats braces in a message, so the text goes through the context.
    return PydanticCustomError("study", "{text}", {"text": message, "at": at})


def _whole(value: object, at: str | int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"Must be a whole number, not {value!r}", at)
    return value


def _range(value: dict[str, object]) -> tuple[int, ...]:
    for key in value:
        if key not in {"from", "to", "step"}:
            raise wrong(f"Unknown key of a range; {nearest(key, ('from', 'to', 'step'))}", key)
    if "from" not in value or "to" not in value:
        raise wrong("A range needs `from` and `to`: write {from: 1, to: 10}")
    first, last = _whole(value["from"], "from"), _whole(value["to"], "to")
    step = _whole(value.get("step", 1), "step")
    if step < 1:
        raise wrong(f"Must be at least 1, not {step}", "step")
    if last < first:
        raise wrong(f"The range from {first} to {last} is empty; swap the numbers", "to")
    if (last - first) // step >= _MOST_STEPS:
        raise wrong(f"The range has more than {_MOST_STEPS} values; make it smaller")
    return tuple(range(first, last + 1, step))


def _integers(value: object) -> tuple[int, ...]:
    if isinstance(value, dict):
        return _range(value)
    if isinstance(value, (list, tuple)):
        if not value:
            raise wrong("The list is empty; write at least one number, or remove the key")
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
        raise wrong("Must be one value, not a list; flags with several words cannot be searched")
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
        raise wrong(f"Must be text in quotes, or null to unset the variable, not {value!r}")
    if isinstance(value, str) and "\0" in value:
        raise wrong("An environment variable cannot contain a zero byte")
    return None if value is None else str(value)


def _as_yaml(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _choices(value: object) -> object:
    if value is None:
        raise wrong(
            "Must be a list of choices; to unset it in every launch write `null` under `server`"
        )
    if not isinstance(value, (list, tuple)):
        raise wrong(
            f"Must be a list of choices, such as [null, {_as_yaml(value)}]; for a value in every "
            "launch use `server`"
        )
    if not value:
        raise wrong("The list is empty; write at least one choice, or remove the key")
    return value


def _distinct_choices(value: tuple[Value, ...]) -> tuple[Value, ...]:
    seen: dict[tuple[type, Value], Value] = {}
    for item in value:
        seen.setdefault((type(item), item), item)
    kept = tuple(seen.values())
    if len(set(kept)) < len(kept):
        # 1, 1.0 and True are equal in Python, so two servers would become one configuration.
        listed = ", ".join(_as_yaml(item) for item in kept)
        raise wrong(f"The values [{listed}] differ only in type; keep one")
    return kept


def _flag_names(flags: dict[str, object]) -> dict[str, object]:
    out: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for name, value in flags.items():
        plain = canonical_flag(name)
        if not _FLAG.fullmatch(plain):
            raise wrong(f"{name!r} is not a flag name; write a name such as tp-size", name)
        if plain in out:
            raise wrong(f"Same flag as {spelled[plain]!r}; remove one", name)
        out[plain], spelled[plain] = value, name
    return out


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        plain = re.sub(r"\W", "_", name).lstrip("0123456789")
        hint = (
            f"; did you mean `{plain}`?"
            if _VARIABLE.fullmatch(plain)
            else "; write a name such as NCCL_PROTO"
        )
        raise wrong(f"{name!r} is not a variable name{hint}")
    return name


def study_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a study; `None` for a valid name."""
    if not _NAME.fullmatch(name):
        return "Must consist of letters, digits, '.', '_' and '-', such as kimi"
    if name.endswith((".yaml", ".yml")):
        return "Must not end in .yaml or .yml, because commands would look for a file; write kimi"
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
        raise wrong(f"Rates can only be maximized: write `objective: {{maximize: {name}}}`")
    if name not in LIMITS:
        raise wrong(f"Unknown limit; {nearest(name, LIMITS)}")
    return name


FlagNames = AfterValidator(_flag_names)
Algorithm = Annotated[str, PlainValidator(_algorithm)]
PromptSet = Annotated[str, AfterValidator(_prompt_set)]
Limit = Annotated[str, AfterValidator(_limit)]
Text = Annotated[str, Field(strict=True, min_length=1)]
StudyName = Annotated[str, Field(strict=True), AfterValidator(_study_name)]
# Database columns and the server's lengths have 32 bits.
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Integers = Annotated[tuple[int, ...], PlainValidator(_integers)]
FlagValue = Annotated[Value, PlainValidator(_flag_value)]
# A FixedValue; typed Any so that callers need no cast.
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
    """Wrap a single value in a tuple; refuse an empty list, which would match nothing."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise wrong("The list is empty; write at least one value, or remove the key")
        return value
    return (value,)


def _one_spelling(env: dict[str, Any]) -> dict[str, Any]:
    """Bring values of known variables to canonical spelling; invalid ones stay unchanged."""

    def spell(name: str, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(spell(name, item) for item in value)
        return canonical_value(name, value) if isinstance(value, str) else value

    return {name: spell(name, value) for name, value in env.items()}


OneSpelling = AfterValidator(_one_spelling)
OneOrMoreAlgorithms = Annotated[tuple[Algorithm, ...], BeforeValidator(_one_or_more)]
OneOrMoreFlagValues = Annotated[tuple[FlagValue, ...], BeforeValidator(_one_or_more)]
OneOrMoreEnvValues = Annotated[tuple[EnvValue, ...], BeforeValidator(_one_or_more)]


@dataclass(frozen=True, slots=True)
class _Range:
    least: float
    most: float
    above: bool = False
    whole: bool = False
    or_else: float | None = None

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        upper = f" and at most {self.most:g}" if math.isfinite(self.most) else ""
        other = f", or {self.or_else:g}" if self.or_else is not None else ""
        return f"{kind} {'above' if self.above else 'of at least'} {self.least:g}{upper}{other}"

    def holds(self, value: float) -> bool:
        if self.or_else is not None and value == self.or_else:
            return True
        enough = value > self.least if self.above else value >= self.least
        return enough and value <= self.most


_SAMPLING = {
    "top_p": _Range(0, 1, above=True),
    "top_k": _Range(1, 2**31 - 1, whole=True, or_else=-1),
    "min_p": _Range(0, 1),
    "frequency_penalty": _Range(-2, 2),
    "presence_penalty": _Range(-2, 2),
    "repetition_penalty": _Range(0, 2, above=True),
    "sampling_seed": _Range(0, 2**63 - 1, whole=True),
}
"""Ranges that SGLang accepts (`SamplingParams.verify`, 0.5.23; 32-bit whole numbers)."""

_NOT_SAMPLING = {
    "temperature": "write `temperature: 0.7` under `workload`",
    "max_new_tokens": "write `output_tokens` under `workload`",
    "min_new_tokens": "set `output_tokens` under `workload`; it fixes the length of answers",
    "ignore_eos": "for answers that the model ends write `natural_length: true` under `workload`",
    "stop": "stop words are not supported; with `natural_length: true` the model ends answers",
    "n": "each request gets one answer",
    "seed": "write `sampling_seed`",
}

SHAPING = ("top_p", "top_k", "min_p", "sampling_seed")
"""Parameters without effect on greedy sampling."""


def _sampling(value: object) -> dict[str, float | int]:
    if not isinstance(value, dict):
        raise wrong(
            f"Must be a mapping of names to numbers, such as `{{top_p: 0.95}}`, not {value!r}"
        )
    out: dict[str, float | int] = {}
    for name, number in value.items():
        if name in _NOT_SAMPLING:
            raise wrong(f"Not allowed here; {_NOT_SAMPLING[name]}", name)
        if name not in _SAMPLING:
            raise wrong(f"Unknown sampling parameter; {nearest(name, tuple(_SAMPLING))}", name)
        known = _SAMPLING[name]
        kinds = (int,) if known.whole else (int, float)
        is_number = isinstance(number, kinds) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number) or not known.holds(number):
            raise wrong(f"Must be {known}, not {number!r}", name)
        out[name] = number
    return out


SamplingParameters = Annotated[dict[str, float | int], PlainValidator(_sampling)]
"""Sampling parameters of a workload, by SGLang's names; without the temperature."""
