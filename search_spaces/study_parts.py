"""The sections of a study file, as pydantic models.

Relations between sections are checked in `study_checks`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.algorithms import canonical_algorithm
from search_spaces.study_values import (
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
    Positive,
    PromptSet,
    Text,
    Variable,
)
from search_spaces.workload import OperatingPoint, Workload


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

    algorithm: Algorithm
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
    flags: Annotated[dict[str, FlagChoices], FlagNames] = Field(default_factory=dict)
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

    prompts: dict[PromptSet, Positive] = Field(min_length=1)
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
    subject_to: dict[Limit, Positive] = Field(default_factory=dict)


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
