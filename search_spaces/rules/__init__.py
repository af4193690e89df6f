"""The legality rules: what SGLang or NCCL would refuse, or die of.

To add one, write a function in `speculation`, `server` or `nccl` that gives the message for a
candidate that breaks it (else `None`), and decorate it with the place where it was read. A rule
sees the flags that were asked for: what SGLang resolves from the model or the GPU shows only after
a launch.
"""

from __future__ import annotations

from search_spaces.rules.nccl import NCCL_RULES
from search_spaces.rules.rule import ENGINE, Rule
from search_spaces.rules.server import SERVER_RULES
from search_spaces.rules.speculation import SPECULATION_RULES

__all__ = ["ENGINE", "RULES", "RULE_ENV", "RULE_FLAGS", "Rule"]

RULES: tuple[Rule, ...] = (*SPECULATION_RULES, *SERVER_RULES, *NCCL_RULES)
"""Every rule, in the order in which violations are listed."""

RULE_FLAGS = frozenset(
    {
        "attention-backend",
        "attn-cp-size",
        "attn-dp-size",
        "chunked-prefill-size",
        "decode-attention-backend",
        "device",
        "disable-cuda-graph-padding",
        "disaggregation-mode",
        "dp-size",
        "enable-dp-attention",
        "enable-dp-lm-head",
        "enable-linear-replayssm-spec",
        "enable-multi-layer-eagle",
        "enable-pdmux",
        "enable-prefill-cp",
        "enable-priority-scheduling",
        "enable-torch-compile",
        "enable-two-batch-overlap",
        "ep-size",
        "max-running-requests",
        "mem-fraction-static",
        "moe-a2a-backend",
        "moe-dense-tp-size",
        "moe-dp-size",
        "moe-runner-backend",
        "nnodes",
        "page-size",
        "pp-size",
        "prefill-attention-backend",
        "retraction-policy",
        "schedule-conservativeness",
        "schedule-policy",
        "speculative-accept-threshold-acc",
        "speculative-accept-threshold-single",
        "speculative-adaptive",
        "speculative-adaptive-config",
        "speculative-draft-attention-backend",
        "speculative-draft-sink-size",
        "speculative-draft-window-size",
        "speculative-ngram-external-corpus-max-tokens",
        "speculative-ngram-external-corpus-path",
        "speculative-ngram-external-sam-budget",
        "speculative-ngram-max-bfs-breadth",
        "speculative-use-block-verification",
        "speculative-use-rejection-sampling",
        "tp-size",
    }
)
"""Flags that the rules look at: two candidates equal in them are equally legal."""

RULE_ENV = frozenset[str]().union(*(rule.env for rule in RULES))
"""Environment variables that the rules look at."""
