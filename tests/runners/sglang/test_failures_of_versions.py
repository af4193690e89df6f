"""What versions other than 0.5.23 say of their failures, as it stands in their sources."""

from __future__ import annotations

import pytest

from runners.sglang.failures.classify import recognise

SIGQUIT_0_5_9 = "[2026-02-24 10:00:00] Received sigquit from a child process. It usually means ..."
DEAD_0_5_9 = "[2026-02-24 10:00:00] Rank 0 scheduler is dead. Please check if there are logs."
OLDER = {
    # 0.5.9 does not say that it kills its own group.
    "0.5.9 own end": (
        f"Scheduler hit an exception: Traceback\nMadeUpError: something\n\n{SIGQUIT_0_5_9}\n",
        -9,
        ("server_crashed", "configuration", "MadeUpError: something"),
    ),
    "0.5.9 scheduler killed": (
        (
            f"{DEAD_0_5_9}\n"
            "[2026-02-24 10:00:00] Exit code: -9\nTraceback (most recent call last):\nEOFError\n"
        ),
        1,
        ("scheduler_killed", "host", "dmesg"),
    ),
    "0.5.9 scheduler crashed": (
        (
            f"{DEAD_0_5_9}\n"
            "[2026-02-24 10:00:00] Exit code: -11\nTraceback (most recent call last):\nEOFError\n"
        ),
        1,
        ("server_crashed", "configuration", "EOFError"),
    ),
    "0.5.9 speculation flags": (
        (
            '  File "/srv/sglang/srt/server_args.py", line 2421, in _handle_speculative_decoding\n'
            "AssertionError\n"
        ),
        1,
        ("invalid_speculation", "configuration", "server_args.py:2421"),
    ),
    "0.5.9 page size": (
        (
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces "
            "incorrect results for paged attention backends.\n"
        ),
        1,
        ("unsupported_backend", "configuration", "page_size > 1"),
    ),
    "0.5.9 draft missing": (
        (
            '  File "/srv/sglang/srt/speculative/eagle_worker.py", line 151, in __init__\n'
            "OSError: models/nosuch is not a local folder and is not a valid model identifier\n"
            f"{SIGQUIT_0_5_9}\n"
        ),
        -9,
        ("draft_not_found", "study", "`model.draft`"),
    ),
    "0.5.17 adaptive": (
        (
            "Exception: Capture cuda graph failed: shared logits buffer holds 96 rows but caller "
            "needs 192 (vocab_size=128256)\nPossible solutions:\n1. set --mem-fraction-static\n"
        ),
        -9,
        ("invalid_speculation", "configuration", "deepest"),
    ),
    "0.5.17 no implementation": (
        (
            "ValueError: FooForCausalLM has no SGlang implementation and the Transformers "
            "implementation is not compatible with SGLang.\n"
        ),
        -9,
        ("unsupported_model", "study", "config.json"),
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_words_of_other_versions(name):
    tail, exit_code, (kind, fault, part) = OLDER[name]
    failure = recognise(tail, exit_code=exit_code, phase="arguments")
    assert (failure.kind, failure.fault) == (kind, fault)
    assert part in failure.message
