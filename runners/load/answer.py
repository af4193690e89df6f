"""What a server says of a finished request, whatever endpoint it was sent to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """The accounts of one request; a figure that the server does not give is `None`.

    Attributes:
        completion_tokens: Tokens of the answer, by the server's own count.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those that came from the prefix cache.
        finish_reason: Why it ended: `"length"`, `"stop"`, `"abort"`.
        verify_calls: Verify forwards; 0 without speculation.
        correct_drafts: Accepted draft tokens, bonus tokens excluded.
        proposed_drafts: Draft tokens that were proposed.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        retractions: How often the server took it back for want of KV cache (`num_retractions`;
            `total_retractions` in 0.5.9): each time its prompt and answer so far are read again,
            which gives a token without a verify. `None` where the endpoint does not say (OpenAI's).
        output_ids: Token ids of the answer, for checks of its content.
        text: The answer.
        error: Why it is not a good answer; `None` for a good one.
    """

    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    verify_calls: int = 0
    correct_drafts: int = 0
    proposed_drafts: int = 0
    histogram: tuple[int, ...] = ()
    retractions: int | None = None
    output_ids: tuple[int, ...] = ()
    text: str = ""
    error: str | None = None
