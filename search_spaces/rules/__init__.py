"""Legality rules: configurations that SGLang or NCCL refuse, or that crash them.

To add a rule, write a function in `speculation` or `server` that returns the message for a
candidate that breaks it, else `None`. Decorate it with the place where it was read. A rule sees the
requested flags; values that SGLang derives from model or GPU are known only after a launch.
"""

from __future__ import annotations

from search_spaces.rules.rule import ENGINE, Rule
from search_spaces.rules.server import NCCL_RULES, SERVER_RULES
from search_spaces.rules.speculation import SPECULATION_RULES

__all__ = ["ENGINE", "RULES", "Rule"]

RULES: tuple[Rule, ...] = (*SPECULATION_RULES, *SERVER_RULES, *NCCL_RULES)
"""Every rule, in the order in which violations are listed."""
