"""A profile: the YAML file with the times, acceptance, noise and faults of a simulated machine."""

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
"""The version of SGLang after which the simulation is made."""

_Ms = Annotated[float, Field(ge=0.0)]
_Seconds = Annotated[float, Field(ge=0.0)]
_Deviation = Annotated[float, Field(ge=0.0, le=0.2)]
_Probability = Annotated[float, Field(ge=0.0, le=1.0)]

AlgorithmName = Literal["EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Verify(_Part):
    """The target's verify forward of `w >= 2` tokens: `base_ms + per_token_ms * w`."""

    base_ms: _Ms
    per_token_ms: _Ms


class Draft(_Part):
    """The draft's time: per step by topk, and its forward over the verified tokens."""

    step_ms: dict[int, _Ms]
    extend_ms: _Ms

    @model_validator(mode="after")
    def _has_chain(self) -> Draft:
        if 1 not in self.step_ms:
            raise ValueError("draft.step_ms needs the time of topk 1")
        return self


class Batch(_Part):
    """What requests beyond the first one cost.

    Attributes:
        token_ms: Each of their tokens in a forward of the target.
        draft_token_ms: Each of them in a draft step.
    """

    token_ms: _Ms
    draft_token_ms: _Ms = 0.0


class Prefill(_Part):
    """A prefill forward: `base_ms + token_ms * uncached prompt tokens`."""

    base_ms: _Ms
    token_ms: _Ms


class CollectiveSaving(_Part):
    """What a setting takes off every forward, in milliseconds; the first match counts."""

    when: When
    verify_ms: float
    decode_ms: float


class Acceptance(_Part):
    """How many drafts are correct.

    Attributes:
        at_least: `P(at least j correct)` of a chain for j = 1, 2, ...; 0 beyond its end.
        tree_gain: Relative gain of a full tree on each of them, by topk.
    """

    at_least: Annotated[tuple[_Probability, ...], Field(min_length=1)]
    tree_gain: dict[int, float] = {}

    @model_validator(mode="after")
    def _falls(self) -> Acceptance:
        if any(a < b for a, b in zip(self.at_least, self.at_least[1:], strict=False)):
            raise ValueError("acceptance.at_least must not rise with the depth")
        return self


class Algorithm(_Part):
    """What an algorithm does otherwise than the profile's own draft (see `algorithms`).

    Attributes:
        step_ms: Per draft step, by topk, as in `draft`.
        cycle_ms: Drafting per cycle, whatever the steps: DFLASH's forward, NGRAM's look-up.
        draft_token_ms: Drafting per token that is to be verified.
        extend_ms: The draft's forward over the verified tokens.
        acceptance: How many drafts are correct.
        fresh: NGRAM: the share of that acceptance that a prompt has which repeats nothing; one
            that repeats itself throughout has all of it.
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
            raise ValueError("step_ms needs the time of topk 1")
        return self


class Noise(_Part):
    """Relative standard deviations of the factors on every time."""

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
    """For every step count beyond the first that the server can be switched to."""
    warmup_s: _Seconds


class Profile(_Part):
    """A simulated machine with its models; see `profiles/kimi.yaml` for what each number means.

    Attributes:
        sglang: The version that the server says it is; this simulation is made after the default.
        gpus: Names of its GPUs, as the driver would give them.
        nvlink: Whether NVLink joins them all, so that SGLang's own all-reduce kernel runs unless it
            is switched off.
        algorithms: By SGLang's name, where an algorithm differs from the profile's own draft.
        kv_tokens: Tokens that the KV cache holds (`--max-total-tokens` sets another number).
        every_token_ms: Where given, a cycle takes this long for each token that it yields a
            request, so that no setting is faster than another; `decode_ms`, `verify` and the
            draft's times then only say how a cycle divides.
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
    """Reads a profile by the name of a shipped one, or by its path.

    Raises:
        FileNotFoundError: There is no such profile.
        ValueError: It is not a good profile (`pydantic.ValidationError`, or not YAML).
    """
    path = Path(name_or_path)
    shipped = PROFILES / f"{name_or_path}.yaml"
    if path.suffix not in {".yaml", ".yml"} and shipped.is_file():
        path = shipped
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PROFILES.glob("*.yaml")))
        raise FileNotFoundError(
            f"there is no profile {str(name_or_path)!r}: name a shipped one ({known}) or a file"
        )
    try:
        data = yaml.load(path.read_text(), Loader=_LOADER)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return Profile.model_validate(data)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_LIMIT = 3.0
"""Standard deviations at which a draw is cut off, so that no factor is absurd."""


class NoiseSource:
    """The factors of one launch.

    Args:
        noise: The profile's standard deviations.
        seed: Equal seeds give equal prompts' factors.
        launch: What tells this launch from others.
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
        """Begins the next block."""
        self._block += 1
        self._renew()

    @property
    def system(self) -> float:
        """The factor that all requests share now."""
        return self._system

    def prompt(self, fingerprint: str) -> float:
        """The factor of a prompt, the same in every launch of this seed."""
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
