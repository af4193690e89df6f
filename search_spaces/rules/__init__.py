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

__all__ = ["ENGINE", "RULES", "Rule"]

RULES: tuple[Rule, ...] = (*SPECULATION_RULES, *SERVER_RULES, *NCCL_RULES)
"""Every rule, in the order in which violations are listed."""
