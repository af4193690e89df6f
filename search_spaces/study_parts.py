"""The sections of a study file, as pydantic models.

Validators raise `PydanticCustomError` with messages that say what to write; `study_errors` adds
key and line. Relations between sections are checked in `study_checks`.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from search_spaces.algorithms import NAMES, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION, Value
from search_spaces.flags import canonical_flag, canonical_flag_value
from search_spaces.workload import OperatingPoint, Workload

PROMPT_SETS = ("chat", "code")
"""Prompt sets that are built in."""

LIMITS = (
    "ttft_p50_ms",
    "ttft_p95_ms",
    "tpot_p50_ms",
    "tpot_p95_ms",
    "e2e_p50_ms",
    "e2e_p95_ms",
)
"""Upper bounds that an objective may set, in milliseconds of the server's own time."""

_MOST_STEPS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FLAG = re.compile(r"[a-z0-9][a-z0-9.-]*", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def wrong(message: str, at: str | int | None = None) -> PydanticCustomError:
    """An error whose message goes to the user as it is; `at` names the key or index below."""
    # Braces are pydantic's template syntax; the text travels through the context instead.
    return PydanticCustomError("study", "{text}", {"text": message, "at": at})


def nearest(word: str, known: tuple[str, ...]) -> str:
    """`"did you mean ..."`, or the known words."""
    close = difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if close:
        match = next(k for k in known if k.lower() == close[0])
        return f"did you mean `{match}`?"
    return f"known here: {', '.join(known)}"


def _whole(value: Any, at: str | int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"Must be a whole number, not {value!r}", at)
    return value


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, dict):
        for key in value:
            if key not in {"from", "to", "step"}:
                raise wrong(
                    f"Unknown key; a range has from, to and step: {nearest(key, ('from', 'to', 'step'))}",
                    key,
                )
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


def _algorithm(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"Must be the name of an algorithm, such as EAGLE3 or none, not {value!r}")
    if value.upper() not in {name.upper() for name in NAMES}:
        raise wrong(f"Unknown algorithm {value!r}; {nearest(value, NAMES)}")
    return NO_SPECULATION if value.lower() == NO_SPECULATION else value.upper()


def _flag_value(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        raise wrong(
            "Must be one value, not a list; choices to be searched belong under `space.flags`"
        )
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise wrong(f"Must be one value (text, number, true or null), not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(f"Must be a finite number, not {value!r}")
    return canonical_flag_value(value)


def _env_value(value: Any) -> str | None:
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


def _choices(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise wrong(
            f"Must be a list of choices, such as [null, {value!r}]; a value for every launch "
            "belongs under `server`"
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
        raise wrong(f"Holds values that differ only in kind (1, 1.0, true): {list(kept)!r}")
    return kept


def _flag_names(flags: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
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
        raise wrong(f"{name!r} is not the name of an environment variable")
    return name


def _study_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise wrong("Must be a plain name of letters, digits, '.', '_' and '-', such as kimi")
    return name


def _prompt_set(name: str) -> str:
    if name not in PROMPT_SETS:
        raise wrong(f"Unknown prompt set; {nearest(name, PROMPT_SETS)}")
    return name


def _limit(name: str) -> str:
    if name not in LIMITS:
        raise wrong(f"Unknown limit; {nearest(name, LIMITS)}")
    return name


Text = Annotated[str, Field(strict=True, min_length=1)]
StudyName = Annotated[str, Field(strict=True), AfterValidator(_study_name)]
Count = Annotated[int, Field(strict=True, ge=1)]
CountOrNone = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Integers = Annotated[tuple[int, ...], PlainValidator(_integers)]
FlagValue = Annotated[Value, PlainValidator(_flag_value)]
EnvValue = Annotated[str | None, PlainValidator(_env_value)]
Variable = Annotated[str, AfterValidator(_variable)]
FlagChoices = Annotated[
    tuple[FlagValue, ...], BeforeValidator(_choices), AfterValidator(_distinct_choices)
]
EnvChoices = Annotated[
    tuple[EnvValue, ...], BeforeValidator(_choices), AfterValidator(_distinct_choices)
]


class Part(BaseModel):
    """A section: frozen, and without keys that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Part):
    """What is served.

    Attributes:
        path: Model path or repository name.
        draft: The draft's; `None` where there is none.
        family: `"llama"` for Llama and Grok-1 architectures, else `"other"`: decides SGLang's
            defaults. `None`: read from the model's config, or guessed from its name.
    """

    path: Text
    draft: Text | None = None
    family: Literal["llama", "other"] | None = None


class Server(Part):
    """What every launch has, baselines included.

    Attributes:
        flags: SGLang flags; `True` is a switch, `None` is not given.
        env: Environment variables; `None` removes one that the caller has set.
        python: Interpreter that runs SGLang; `None` is the one that runs the tuner.
        prefix: Command prefix, such as `[docker, exec, sglang]`.
    """

    flags: Annotated[dict[str, FlagValue], AfterValidator(_flag_names)] = Field(
        default_factory=dict
    )
    env: dict[Variable, EnvValue] = Field(default_factory=dict)
    python: Text | None = None
    prefix: tuple[Text, ...] = ()


class SubSpace(Part):
    """One algorithm and the numbers to try with it; `None` is SGLang's own default.

    Attributes:
        algorithm: `"none"`, or a name in upper case, as it was written (`NEXTN` stays `NEXTN`).
        num_steps: Draft steps per cycle.
        topk: Branches per draft step.
        num_draft_tokens: Tokens that one verify checks; used where `topk > 1`.
    """

    algorithm: Annotated[str, PlainValidator(_algorithm)]
    num_steps: Integers | None = None
    topk: Integers | None = None
    num_draft_tokens: Integers | None = None

    @property
    def canonical_algorithm(self) -> str:
        """The algorithm's one name."""
        return canonical_algorithm(self.algorithm)


class SpaceSpec(Part):
    """What the study varies.

    Attributes:
        speculation: Sub-spaces, at least one.
        draft_tp: Tensor-parallel sizes of the draft; `None` is the target's own.
        flags: Choices per flag; `None` among them is "not given".
        env: Choices per environment variable; `None` among them is "not set".
    """

    speculation: tuple[SubSpace, ...] = Field(min_length=1)
    draft_tp: Integers | None = None
    flags: Annotated[dict[str, FlagChoices], AfterValidator(_flag_names)] = Field(
        default_factory=dict
    )
    env: dict[Variable, EnvChoices] = Field(default_factory=dict)


class PointSpec(Part):
    """One operating point.

    Attributes:
        concurrency: Requests in flight.
        weight: Share in the score's geometric mean.
        requests: Prompts of one window; `None` leaves it to the load generator.
    """

    concurrency: Count
    weight: Positive = 1.0
    requests: Count | None = None


class WorkloadSpec(Part):
    """What the servers are measured with; see `Workload`."""

    prompts: dict[Annotated[str, AfterValidator(_prompt_set)], Positive] = Field(min_length=1)
    output_tokens: Count
    points: tuple[PointSpec, ...] = Field(default=(PointSpec(concurrency=1),), min_length=1)
    temperature: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 0.0
    requests: Count = 16
    warmup_requests: CountOrNone = 1

    def to_workload(self) -> Workload:
        """The workload as a plain value; shares are scaled to sum to 1."""
        total = sum(self.prompts.values())
        return Workload(
            prompts=tuple(sorted((name, share / total) for name, share in self.prompts.items())),
            output_tokens=self.output_tokens,
            points=tuple(
                OperatingPoint(point.concurrency, point.weight, point.requests)
                for point in self.points
            ),
            temperature=self.temperature,
            requests=self.requests,
            warmup_requests=self.warmup_requests,
        )


class Objective(Part):
    """What is best.

    Attributes:
        maximize: The figure that is maximised.
        subject_to: Upper bounds by name (`LIMITS`), in milliseconds.
    """

    maximize: Literal["output_tok_s"] = "output_tok_s"
    subject_to: dict[Annotated[str, AfterValidator(_limit)], Positive] = Field(default_factory=dict)


class Budget(Part):
    """How much the study may spend.

    Attributes:
        launches: Launches that end in a verdict on a configuration, baselines included.
        hours: Hours at work; `None` is no limit.
    """

    launches: Count
    hours: Positive | None = None


class Simulated(Part):
    """How `--runner simulated` plays the server.

    Attributes:
        profile: Name or path of the simulated server's profile.
        time_scale: Simulated seconds per real second.
    """

    profile: Text = "kimi"
    time_scale: Positive = 10.0
