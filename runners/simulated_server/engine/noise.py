"""Noise: factors on every time, reproducible from a seed.

One factor per launch, one per block (the stretch between two flushes of the cache) and one per
prompt; each is drawn once from its own name, so that the order of requests changes nothing.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.simulated_server.engine.profile import Noise

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
