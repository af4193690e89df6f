"""The content of a study file as pydantic models."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from search_spaces.algorithms import canonical_algorithm
from search_spaces.metrics import Metric
from search_spaces.prompt_names import parts_of_one
from search_spaces.study_file.values import (
    Algorithm,
    Count,
    CountOrNone,
    EnvChoices,
    EnvValue,
    FixedFlagValue,
    FlagChoices,
    FlagNames,
    Integers,
    Limit,
    OneOrMoreAlgorithms,
    OneOrMoreEnvValues,
    OneOrMoreFlagValues,
    OneSpelling,
    Positive,
    PromptSet,
    SamplingParameters,
    StudyName,
    Text,
    Variable,
    wrong,
)
from search_spaces.workload import (
    DEFAULT_OUTPUT_SPREAD,
    MOST_PREFIX_GROUPS,
    MOST_PREFIX_TOKENS,
    Goodput,
    OperatingPoint,
    SharedPrefix,
    Workload,
)

SHIPPED = "shipped"
"""`Study.source` of a shipped study."""

KINDS_OF_LOAD = ("concurrency", "request_rate", "trace")
"""Keys of an operating point; exactly one of them is given."""


class Part(BaseModel):
    """A section of the file: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Part):
    """The served model.

    Attributes:
        path: Model path or repository name.
        draft: Path of the draft model, if any.
        family: `"llama"` for Llama and Grok-1 architectures, else `"other"`. The family decides
            SGLang's default draft. `None`: read from the model's config, or guessed from its name.
    """

    path: Text
    draft: Text | None = None
    family: Literal["llama", "other"] | None = None


class Server(Part):
    """The part that is the same in every launch, baselines included.

    Attributes:
        flags: SGLang flags: `True` for a switch, `None` for no flag, a tuple for several words.
        env: Environment variables; `None` removes a variable of the caller.
        python: Interpreter of SGLang; `None` is the tuner's interpreter.
        prefix: Command prefix, such as `[docker, exec, sglang]`.
    """

    flags: Annotated[dict[str, FixedFlagValue], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, EnvValue], OneSpelling] = Field(default_factory=dict)
    python: Text | None = None
    prefix: tuple[Text, ...] = ()


class SubSpace(Part):
    """An algorithm and the numbers to try; `None` is SGLang's default.

    Attributes:
        algorithm: `"none"`, or a name in upper case; `NEXTN` stays `NEXTN`.
        num_steps: Draft steps per cycle.
        topk: Branches per draft step.
        num_draft_tokens: Tokens per verify; only used where `topk > 1`.
        flags: Choices per flag for this sub-space only.
    """

    algorithm: Algorithm
    num_steps: Integers | None = None
    topk: Integers | None = None
    num_draft_tokens: Integers | None = None
    flags: Annotated[dict[str, FlagChoices], FlagNames] = Field(default_factory=dict)

    @property
    def canonical_algorithm(self) -> str:
        """The algorithm's canonical name."""
        return canonical_algorithm(self.algorithm)


class Pattern(Part):
    """Allowed values of a configuration; a key that is not given allows every value.

    In `flags` and `env`, `None` stands for a flag or variable that is not set.
    """

    algorithm: OneOrMoreAlgorithms | None = None
    num_steps: Integers | None = None
    topk: Integers | None = None
    num_draft_tokens: Integers | None = None
    draft_tp: Integers | None = None
    flags: Annotated[dict[str, OneOrMoreFlagValues], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, OneOrMoreEnvValues], OneSpelling] = Field(default_factory=dict)


class Condition(Part):
    """Where `when` matches, `then` must match too."""

    when: Pattern
    then: Pattern


class SpaceSpec(Part):
    """The part that the study varies.

    In `flags` and `env`, `None` stands for a flag or variable that is not set.

    Attributes:
        speculation: Sub-spaces, at least one.
        draft_tp: Tensor-parallel sizes of the draft; `None` is the target's size.
        flags: Choices per flag, for all sub-spaces.
        env: Choices per environment variable.
        conditions: Conditions on points; points that break one are left out.
    """

    speculation: tuple[SubSpace, ...] = Field(min_length=1)
    draft_tp: Integers | None = None
    flags: Annotated[dict[str, FlagChoices], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, EnvChoices], OneSpelling] = Field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @property
    def tuned_flags(self) -> tuple[str, ...]:
        """Every searched flag, of all sub-spaces or of some, without repeats."""
        own = (name for part in self.speculation for name in part.flags)
        return tuple(dict.fromkeys((*self.flags, *own)))


class Production(Part):
    """Today's launch command, the third baseline.

    Attributes:
        command: The whole command line, with its environment variables.
    """

    command: Text


class Objective(Part):
    """The objective of the search.

    Attributes:
        maximize: The rate to maximize, unless `minimize` is given.
        minimize: The latency to minimize (`LIMITS`).
        subject_to: Upper limits by name (`LIMITS`), in milliseconds.
    """

    maximize: Literal["output_tok_s", "goodput_request_s", "request_s"] = "output_tok_s"
    minimize: Limit | None = None
    subject_to: dict[Limit, Positive] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_direction(self) -> Objective:
        if self.minimize is not None and "maximize" in self.model_fields_set:
            raise wrong(
                "Cannot be combined with `maximize`; remove one, and put limits under `subject_to`",
                "minimize",
            )
        return self

    @property
    def metric(self) -> Metric:
        """The metric that ranks configurations."""
        if self.minimize is not None:
            return Metric(self.minimize, larger_is_better=False)
        return Metric(self.maximize)


class Budget(Part):
    """The budget of the study.

    Attributes:
        launches: Launches with a result for a configuration, baselines included.
        hours: Hours of running time; `None` is no limit.
    """

    launches: Count
    hours: Positive | None = None


class Simulated(Part):
    """Settings of `--runner simulated`.

    Attributes:
        profile: Name or path of the simulated server's profile.
        time_scale: Simulated seconds per real second.
    """

    profile: Text = "kimi"
    time_scale: Positive = 10.0


class PointSpec(Part):
    """One operating point; see `OperatingPoint`."""

    concurrency: Count | None = None
    request_rate: Positive | None = None
    trace: Text | None = None
    weight: Positive = 1.0
    requests: Count | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> PointSpec:
        given = [key for key in KINDS_OF_LOAD if getattr(self, key) is not None]
        if not given:
            raise wrong(
                "Needs one of concurrency, request_rate and trace: write "
                "`{concurrency: 8}`, `{request_rate: 4, requests: 100}` or "
                "`{trace: arrivals.jsonl}`"
            )
        if len(given) > 1:
            raise wrong(
                f"Has {' and '.join(given)}; keep one, or write two operating points",
                given[1],
            )
        return self

    def to_point(self) -> OperatingPoint:
        """The point as a plain value."""
        return OperatingPoint(
            self.concurrency, self.weight, self.requests, self.request_rate, self.trace
        )


class SharedPrefixSpec(Part):
    """Prefixes shared by prompts; see `SharedPrefix`."""

    tokens: Annotated[Count, Field(le=MOST_PREFIX_TOKENS)]
    groups: Annotated[Count, Field(le=MOST_PREFIX_GROUPS)] = 1


class GoodputSpec(Part):
    """Limits of a good request; see `Goodput`."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    e2e_ms: Positive | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> GoodputSpec:
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            raise wrong("Has no limit; write at least one, such as `{ttft_ms: 500, tpot_ms: 50}`")
        return self


class OutputTokensSpec(Part):
    """Lengths of answers: mean and relative spread."""

    mean: Count
    spread: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]

    @model_validator(mode="before")
    @classmethod
    def _of_mean(cls, value: object, info: ValidationInfo) -> object:
        """Read a number as the mean; take the spread from the context if none is stated."""
        given = value if isinstance(value, dict) else {"mean": value}
        default = (info.context or {}).get("output_spread", DEFAULT_OUTPUT_SPREAD)
        return {"spread": default, **given}


class WorkloadSpec(Part):
    """The load of the study; see `Workload`."""

    prompts: dict[PromptSet, Positive] = Field(min_length=1)
    output_tokens: OutputTokensSpec
    points: tuple[PointSpec, ...] = Field(default=(PointSpec(concurrency=1),), min_length=1)
    temperature: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 0.0
    requests: Count = 16
    warmup_requests: CountOrNone = 1
    sampling: SamplingParameters = Field(default_factory=dict)
    natural_length: Annotated[bool, Field(strict=True)] = False
    shared_prefix: SharedPrefixSpec | None = None
    goodput: GoodputSpec | None = None
    request_timeout_s: Positive | None = None

    @field_validator("prompts")
    @classmethod
    def _shares(cls, prompts: dict[str, float]) -> dict[str, float]:
        try:
            parts_of_one(prompts)
        except ValueError as error:
            raise wrong(str(error)) from None
        return prompts

    def to_workload(self, base_dir: str = "") -> Workload:
        """The workload as a plain value, with shares scaled to sum to 1."""
        lengths = self.output_tokens
        prefix, goodput = self.shared_prefix, self.goodput
        return Workload(
            prompts=parts_of_one(self.prompts),
            output_tokens=lengths.mean,
            # The model ends the answers, so the mean is only a limit.
            output_spread=0.0 if self.natural_length else lengths.spread,
            points=tuple(point.to_point() for point in self.points),
            temperature=self.temperature,
            requests=self.requests,
            warmup_requests=self.warmup_requests,
            sampling=tuple(sorted(self.sampling.items())),
            natural_length=self.natural_length,
            shared_prefix=None if prefix is None else SharedPrefix(prefix.tokens, prefix.groups),
            goodput=None
            if goodput is None
            else Goodput(goodput.ttft_ms, goodput.tpot_ms, goodput.e2e_ms),
            request_timeout_s=self.request_timeout_s,
            base_dir=base_dir,
        )


class Study(Part):
    """One tuning problem: model, server, space, workload, objective and budget.

    Attributes:
        name: The study's name (key `study`).
        production: Today's launch command, if any.
        simulated_acceptance: Whether the servers may simulate acceptance.
        runner: Default of `--runner`; the runners' registry knows which names exist.
    """

    name: StudyName = Field(alias="study")
    model: Model
    server: Server = Server()
    space: SpaceSpec
    workload: WorkloadSpec
    objective: Objective = Objective()
    budget: Budget
    production: Production | None = None
    simulated_acceptance: Annotated[bool, Field(strict=True)] = False
    runner: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")] = "sglang"
    simulated: Simulated = Simulated()

    _source: str = PrivateAttr(default="")
    _text: str = PrivateAttr(default="")
    _base_dir: str = PrivateAttr(default="")
    _output_spread: float = PrivateAttr(default=DEFAULT_OUTPUT_SPREAD)

    @property
    def source(self) -> str:
        """Path of the file, or `"shipped"`."""
        return self._source

    @property
    def base_dir(self) -> str:
        """Folder of relative paths in the file; empty for the working directory."""
        return self._base_dir

    @property
    def default_output_spread(self) -> float:
        """Spread of answer lengths if the file states none."""
        return self._output_spread

    def to_workload(self) -> Workload:
        """The workload as a plain value."""
        return self.workload.to_workload(self._base_dir)

    @property
    def text(self) -> str:
        """The text of the file."""
        return self._text

    @property
    def digest(self) -> str:
        """SHA-256 of `text`: part of a stored study's identity."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    def set_origin(self, source: str, text: str, base_dir: str, output_spread: float) -> None:
        """Record where the study comes from; called once by the loader."""
        self._source, self._text, self._base_dir = source, text, base_dir
        self._output_spread = output_spread
