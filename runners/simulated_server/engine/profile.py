"""Profile: a YAML file with the times, acceptance, noise and faults of a simulated machine."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from runners.simulated_server.faults.misbehaviour import (  # noqa: TC001 - pydantic
    Misbehaviour,
    When,
)

PROFILES = Path(__file__).parents[1] / "profiles"

VERSION = "0.5.23"
"""SGLang version that the simulation follows."""

_Ms = Annotated[float, Field(ge=0.0)]
_Seconds = Annotated[float, Field(ge=0.0)]
_Deviation = Annotated[float, Field(ge=0.0, le=0.2)]
_Probability = Annotated[float, Field(ge=0.0, le=1.0)]

AlgorithmName = Literal["EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Verify(_Part):
    """Time of the target's verify of `w >= 2` tokens: `base_ms + per_token_ms * w`."""

    base_ms: _Ms
    per_token_ms: _Ms


class Draft(_Part):
    """Times of the draft: per step by topk, and its forward over the verified tokens."""

    step_ms: dict[int, _Ms]
    extend_ms: _Ms

    @model_validator(mode="after")
    def _has_chain(self) -> Draft:
        if 1 not in self.step_ms:
            raise ValueError("draft.step_ms has no time for topk 1; add it")
        return self


class Batch(_Part):
    """Extra time of each request after the first.

    Attributes:
        token_ms: Per token in a forward of the target.
        draft_token_ms: Per token in a draft step.
    """

    token_ms: _Ms
    draft_token_ms: _Ms = 0.0


class Prefill(_Part):
    """Time of a prefill forward: `base_ms + token_ms * uncached prompt tokens`."""

    base_ms: _Ms
    token_ms: _Ms


class CollectiveSaving(_Part):
    """Milliseconds that a setting saves in every forward; the first matching entry counts."""

    when: When
    verify_ms: float
    decode_ms: float


class Acceptance(_Part):
    """Probabilities of correct drafts.

    Attributes:
        at_least: `P(at least j correct)` of a chain for j = 1, 2, ...; 0 beyond its end.
        tree_gain: Relative gain of a full tree on each probability, by topk.
    """

    at_least: Annotated[tuple[_Probability, ...], Field(min_length=1)]
    tree_gain: dict[int, float] = {}

    @model_validator(mode="after")
    def _falls(self) -> Acceptance:
        if any(a < b for a, b in zip(self.at_least, self.at_least[1:], strict=False)):
            raise ValueError("acceptance.at_least must not rise with the depth")
        return self


class Algorithm(_Part):
    """Values of an algorithm that differ from the profile's draft (see `Profile.algorithms`).

    Attributes:
        step_ms: Time per draft step, by topk.
        cycle_ms: Drafting time per cycle that does not depend on the steps: DFLASH's forward,
            NGRAM's look-up.
        draft_token_ms: Drafting time per token to verify.
        extend_ms: Time of the draft's forward over the verified tokens.
        acceptance: Probabilities of correct drafts.
        fresh: NGRAM: share of the acceptance for a prompt without repetition.
    """

    step_ms: dict[int, _Ms] | None = None
    cycle_ms: _Ms | None = None
    draft_token_ms: _Ms | None = None
    extend_ms: _Ms | None = None
    acceptance: Acceptance | None = None
    fresh: _Probability | None = None

    @model_validator(mode="after")
    def _has_chain(self) -> Algorithm:
        if self.step_ms is not None and 1 not in self.step_ms:
            raise ValueError("step_ms has no time for topk 1; add it")
        return self


class Noise(_Part):
    """Relative standard deviations of the noise factors."""

    launch: _Deviation = 0.0
    block: _Deviation = 0.0
    prompt: _Deviation = 0.0


class Startup(_Part):
    """Seconds of each phase of the start-up."""

    imports_s: _Seconds
    distributed_s: _Seconds
    load_weight_s: _Seconds
    load_draft_s: _Seconds
    kv_cache_s: _Seconds
    cuda_graph_s: _Seconds
    draft_cuda_graph_s: _Seconds
    switchable_step_s: _Seconds
    """For every further setting of the hot switch."""
    warmup_s: _Seconds


class Profile(_Part):
    """A simulated machine with its models; `profiles/kimi.yaml` explains each number.

    Attributes:
        sglang: SGLang version that the server reports.
        gpus: Names of the GPUs, as the driver reports them.
        nvlink: Whether NVLink joins all GPUs. SGLang's own all-reduce kernel then runs by default.
        algorithms: Algorithms that differ from the profile's draft, by SGLang's name.
        kv_tokens: Size of the KV cache in tokens; `--max-total-tokens` lowers it.
        every_token_ms: Time of a cycle per token that it yields a request. With this value all
            settings are equally fast; `decode_ms`, `verify` and the draft's times only give the
            proportions of a cycle.
    """

    name: str
    sglang: str = VERSION
    gpus: tuple[str, ...] = ()
    nvlink: bool = False
    decode_ms: _Ms
    verify: Verify
    draft: Draft
    rest_ms: _Ms
    batch: Batch
    prefill: Prefill
    collectives: tuple[CollectiveSaving, ...] = ()
    acceptance: Acceptance
    algorithms: dict[AlgorithmName, Algorithm] = {}
    kv_tokens: Annotated[int, Field(ge=1)] = 300_000
    every_token_ms: Annotated[float, Field(gt=0.0)] | None = None
    noise: Noise = Noise()
    startup: Startup
    misbehave: tuple[Misbehaviour, ...] = ()


def load_profile(name_or_path: str | Path = "kimi") -> Profile:
    """Read a shipped profile by its name, or a profile by its path.

    Raises:
        FileNotFoundError: The profile does not exist.
        ValueError: The profile is invalid (`pydantic.ValidationError`) or not YAML.
    """
    path = Path(name_or_path)
    shipped = PROFILES / f"{name_or_path}.yaml"
    if path.suffix not in {".yaml", ".yml"} and shipped.is_file():
        path = shipped
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PROFILES.glob("*.yaml")))
        raise FileNotFoundError(
            f"profile {str(name_or_path)!r} does not exist; use a file or one of {known}"
        )
    try:
        data = yaml.load(path.read_text(), Loader=_LOADER)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return Profile.model_validate(data)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_LIMIT = 3.0
"""Largest deviation of a draw, in standard deviations."""


class NoiseSource:
    """Noise of one launch: factors on all times, reproducible from a seed.

    Each launch, each block (the time between two flushes of the cache) and each prompt has a
    factor. A factor depends only on its name, so the order of requests does not change it.

    Args:
        noise: Standard deviations of the profile.
        seed: Equal seeds give equal factors of the prompts.
        launch: Name of the launch.
    """

    def __init__(self, noise: Noise, seed: int, launch: str) -> None:
        self._noise = noise
        self._seed = seed
        self._launch = launch
        self._block = 0
        self._launch_factor = self._draw(noise.launch, "launch", launch)
        self._system = 0.0
        self._renew()

    def next_block(self) -> None:
        self._block += 1
        self._renew()

    @property
    def system(self) -> float:
        """Current factor of all requests: launch times block."""
        return self._system

    def prompt(self, fingerprint: str) -> float:
        """Return the factor of a prompt; equal in all launches with the same seed."""
        return self._draw(self._noise.prompt, "prompt", fingerprint)

    def _renew(self) -> None:
        block = self._draw(self._noise.block, "block", self._launch, str(self._block))
        self._system = self._launch_factor * block

    def _draw(self, deviation: float, *name: str) -> float:
        if deviation == 0.0:
            return 1.0
        key = "\0".join((str(self._seed), *name)).encode()
        number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        draw = random.Random(number).gauss(0.0, 1.0)  # noqa: S311 - noise, not a secret
        return 1.0 + deviation * max(-_LIMIT, min(_LIMIT, draw))
