"""What things cost on the simulated machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from runners.simulated_server.engine.algorithms import drafting
from runners.simulated_server.engine.profile import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.engine.algorithms import Drafting
    from runners.simulated_server.engine.profile import Profile


@dataclass(frozen=True, slots=True)
class CycleTime:
    """One decode cycle, in milliseconds; without speculation all of it is `verify` and `rest`."""

    draft_ms: float
    draft_extend_ms: float
    verify_ms: float
    rest_ms: float

    @property
    def total_ms(self) -> float:
        """The whole cycle."""
        return self.draft_ms + self.draft_extend_ms + self.verify_ms + self.rest_ms

    def lasting(self, total_ms: float) -> CycleTime:
        """The same shares of another total."""
        factor = total_ms / self.total_ms if self.total_ms else 0.0
        return CycleTime(
            self.draft_ms * factor,
            self.draft_extend_ms * factor,
            self.verify_ms * factor if self.total_ms else total_ms,
            self.rest_ms * factor,
        )


class CostModel:
    """Times of one configuration on a profile's machine.

    Args:
        profile: The machine.
        facts: Flags by destination and variables by name, for the profile's conditions.
    """

    def __init__(self, profile: Profile, facts: Mapping[str, Any]) -> None:
        self._profile = profile
        self.facts = dict(facts)
        saving = next((s for s in profile.collectives if holds(s.when, self.facts)), None)
        self._verify_saving_ms = saving.verify_ms if saving else 0.0
        self._decode_saving_ms = saving.decode_ms if saving else 0.0
        name = self.facts.get("algorithm") or self.facts.get("speculative_algorithm")
        speculates = name is not None and str(name).lower() != "none"
        self.drafting: Drafting | None = (
            drafting(profile, str(name), self.facts) if speculates else None
        )

    def at_steps(self, num_steps: int, num_draft_tokens: int) -> Self:
        """The same machine at another depth, of which other conditions may hold."""
        return type(self)(
            self._profile,
            self.facts
            | {
                "num_steps": num_steps,
                "num_draft_tokens": num_draft_tokens,
                "speculative_num_steps": num_steps,
                "speculative_num_draft_tokens": num_draft_tokens,
            },
        )

    def prefill_ms(self, uncached_tokens: float) -> float:
        """One prefill forward over the uncached tokens of its requests."""
        prefill = self._profile.prefill
        return prefill.base_ms + prefill.token_ms * uncached_tokens

    def decode(self, batch: int, tokens: float = 1.0) -> CycleTime:
        """A decode forward of `batch` requests without speculation.

        Args:
            batch: Requests.
            tokens: What it yields each of them; only `every_token_ms` asks.
        """
        profile = self._profile
        forward = profile.decode_ms + profile.batch.token_ms * (batch - 1)
        cycle = CycleTime(0.0, 0.0, max(0.0, forward - self._decode_saving_ms), 0.0)
        return self._equal(cycle, batch, tokens)

    def speculate(
        self, batch: int, num_steps: int, topk: int, width: int, tokens: float = 1.0
    ) -> CycleTime:
        """A draft-verify cycle of `batch` requests; `width` tokens are verified for each.

        At no steps (adaptive speculation) the target decodes one token, and the draft's cache is
        kept warm, as in SGLang 0.5.23.
        """
        profile, drafts = self._profile, self.drafting
        if drafts is None:
            return self.decode(batch, tokens)
        if drafts.pauses(num_steps):
            forward = profile.decode_ms + profile.batch.token_ms * (batch - 1)
            verify, draft, saving = forward, 0.0, self._decode_saving_ms
        else:
            verify = profile.verify.base_ms + profile.verify.per_token_ms * width
            verify += profile.batch.token_ms * width * (batch - 1)
            draft = drafts.draft_ms(num_steps, topk, width)
            draft += profile.batch.draft_token_ms * num_steps * max(1, topk) * (batch - 1)
            saving = self._verify_saving_ms
        cycle = CycleTime(
            draft_ms=draft,
            draft_extend_ms=drafts.extend_ms,
            verify_ms=max(0.0, verify - saving),
            rest_ms=profile.rest_ms,
        )
        return self._equal(cycle, batch, tokens)

    def _equal(self, cycle: CycleTime, batch: int, tokens: float) -> CycleTime:
        each = self._profile.every_token_ms
        if each is None:
            return cycle
        return cycle.lasting(tokens * (each + self._profile.batch.token_ms * (batch - 1)))
