"""The `workload` section of a study file, as pydantic models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from search_spaces.prompt_names import parts_of_one
from search_spaces.sampling import SamplingParameters  # noqa: TC001 - pydantic reads it
from search_spaces.study_file.parts import Part
from search_spaces.study_file.values import Count, CountOrNone, Positive, PromptSet, Text, wrong
from search_spaces.workload import (
    DEFAULT_OUTPUT_SPREAD,
    MOST_PREFIX_GROUPS,
    MOST_PREFIX_TOKENS,
    Goodput,
    OperatingPoint,
    SharedPrefix,
    Workload,
)

KINDS_OF_LOAD = ("concurrency", "request_rate", "trace")
"""Keys of an operating point, of which it has exactly one."""


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
                "An operating point has one of concurrency, request_rate and trace: write "
                "`{concurrency: 8}`, `{request_rate: 4, requests: 100}` or "
                "`{trace: arrivals.jsonl}`"
            )
        if len(given) > 1:
            raise wrong(
                f"Has {' and '.join(given)}; keep one of them, or write two operating points",
                given[1],
            )
        return self

    def to_point(self) -> OperatingPoint:
        """The point as a plain value."""
        return OperatingPoint(
            self.concurrency, self.weight, self.requests, self.request_rate, self.trace
        )


class SharedPrefixSpec(Part):
    """Prefixes that prompts share on purpose; see `SharedPrefix`."""

    tokens: Annotated[Count, Field(le=MOST_PREFIX_TOKENS)]
    groups: Annotated[Count, Field(le=MOST_PREFIX_GROUPS)] = 1


class GoodputSpec(Part):
    """Limits that a request must keep to count as good; see `Goodput`."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    e2e_ms: Positive | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> GoodputSpec:
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            raise wrong("Holds no limit; write at least one, such as `{ttft_ms: 500, tpot_ms: 50}`")
        return self


class OutputTokensSpec(Part):
    """Lengths of answers: their mean, and how far they spread around it."""

    mean: Count
    spread: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]

    @model_validator(mode="before")
    @classmethod
    def _of_mean(cls, value: object, info: ValidationInfo) -> object:
        """A number is a mean; the spread of a study of its time is taken where none is stated."""
        given = value if isinstance(value, dict) else {"mean": value}
        default = (info.context or {}).get("output_spread", DEFAULT_OUTPUT_SPREAD)
        return {"spread": default, **given}


class WorkloadSpec(Part):
    """What the servers are measured with; see `Workload`."""

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
        """The workload as a plain value; shares are scaled to sum to 1.

        Args:
            base_dir: Folder that relative paths start from.
        """
        lengths = self.output_tokens
        prefix, goodput = self.shared_prefix, self.goodput
        return Workload(
            prompts=parts_of_one(self.prompts),
            output_tokens=lengths.mean,
            # Of answers that end by themselves the mean is a limit.
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
