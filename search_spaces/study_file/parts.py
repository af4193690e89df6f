"""What every section of a study file has in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces.algorithms import canonical_algorithm
from search_spaces.metrics import Figure
from search_spaces.study_file.values import (
    Algorithm,
    Count,
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
    Text,
    Variable,
    wrong,
)


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
        flags: SGLang flags; `True` is a switch, `None` is not given, a tuple is a flag of several
            words.
        env: Environment variables; `None` removes one that the caller has set.
        python: Interpreter that runs SGLang; `None` is the one that runs the tuner.
        prefix: Command prefix, such as `[docker, exec, sglang]`.
    """

    flags: Annotated[dict[str, FixedFlagValue], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, EnvValue], OneSpelling] = Field(default_factory=dict)
    python: Text | None = None
    prefix: tuple[Text, ...] = ()


class SubSpace(Part):
    """One algorithm and the numbers to try with it; `None` is SGLang's own default.

    Attributes:
        algorithm: `"none"`, or a name in upper case, as it was written (`NEXTN` stays `NEXTN`).
        num_steps: Draft steps per cycle.
        topk: Branches per draft step.
        num_draft_tokens: Tokens that one verify checks; used where `topk > 1`.
        flags: Choices per flag that are given in this sub-space only.
    """

    algorithm: Algorithm
    num_steps: Integers | None = None
    topk: Integers | None = None
    num_draft_tokens: Integers | None = None
    flags: Annotated[dict[str, FlagChoices], FlagNames] = Field(default_factory=dict)

    @property
    def canonical_algorithm(self) -> str:
        """The algorithm's one name."""
        return canonical_algorithm(self.algorithm)


class Pattern(Part):
    """A set of configurations, by their values. A key that is not given matches all.

    Attributes:
        algorithm: Any of these algorithms.
        num_steps: Any of these.
        topk: Any of these.
        num_draft_tokens: Any of these.
        draft_tp: Any of these.
        flags: For each flag any of these values; `None` among them is "not given".
        env: For each variable any of these values; `None` among them is "not set".
    """

    algorithm: OneOrMoreAlgorithms | None = None
    num_steps: Integers | None = None
    topk: Integers | None = None
    num_draft_tokens: Integers | None = None
    draft_tp: Integers | None = None
    flags: Annotated[dict[str, OneOrMoreFlagValues], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, OneOrMoreEnvValues], OneSpelling] = Field(default_factory=dict)


class Condition(Part):
    """Where `when` matches, `then` must match too.

    Attributes:
        when: Which configurations it speaks of.
        then: What they must be.
    """

    when: Pattern
    then: Pattern


class SpaceSpec(Part):
    """What the study varies.

    Attributes:
        speculation: Sub-spaces, at least one.
        draft_tp: Tensor-parallel sizes of the draft; `None` is the target's own.
        flags: Choices per flag; `None` among them is "not given".
        env: Choices per environment variable; `None` among them is "not set".
        conditions: What must hold between them; a point that breaks one is left out.
    """

    speculation: tuple[SubSpace, ...] = Field(min_length=1)
    draft_tp: Integers | None = None
    flags: Annotated[dict[str, FlagChoices], FlagNames] = Field(default_factory=dict)
    env: Annotated[dict[Variable, EnvChoices], OneSpelling] = Field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @property
    def tuned_flags(self) -> tuple[str, ...]:
        """Every flag that is varied, in all sub-spaces or in some of them, without repeats."""
        own = (name for part in self.speculation for name in part.flags)
        return tuple(dict.fromkeys((*self.flags, *own)))


class Production(Part):
    """Today's launch, where the study was made from one: the third baseline.

    Attributes:
        command: The whole command as one would type it, variables before it.
    """

    command: Text


class Objective(Part):
    """What is best.

    Attributes:
        maximize: The figure that is maximized, unless one is minimized.
        minimize: The latency that is minimized in its place (`LIMITS`).
        subject_to: Upper bounds by name (`LIMITS`), in milliseconds.
    """

    maximize: Literal["output_tok_s", "goodput_request_s", "request_s"] = "output_tok_s"
    minimize: Limit | None = None
    subject_to: dict[Limit, Positive] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_direction(self) -> Objective:
        if self.minimize is not None and "maximize" in self.model_fields_set:
            raise wrong(
                "Stands beside `maximize`; keep one of them, and put limits under `subject_to`",
                "minimize",
            )
        return self

    @property
    def figure(self) -> Figure:
        """The figure by which configurations are ranked."""
        if self.minimize is not None:
            return Figure(self.minimize, larger_is_better=False)
        return Figure(self.maximize)


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
