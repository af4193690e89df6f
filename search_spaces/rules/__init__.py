"""Legality rules: configurations that SGLang or NCCL refuse, or that crash them.

To add a rule, write a function in `speculation` or `server` that returns the message for a
candidate that breaks it, else `None`, and decorate it with the place where it was read. Add an
example that breaks it to `tests/search_spaces/rules/test_rules.py`. A rule sees the
requested flags; values that SGLang derives from model or GPU are known only after a launch.
"""

from __future__ import annotations

from search_spaces.rules.rule import ENGINE, Rule
from search_spaces.rules.server import nccl_rules, server_rules
from search_spaces.rules.speculation import speculation_rules

__all__ = ["ENGINE", "RULES", "Rule"]

RULES: tuple[Rule, ...] = (*speculation_rules.all, *server_rules.all, *nccl_rules.all)
"""Every rule, in the order in which violations are listed."""
