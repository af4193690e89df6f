"""Environment variables, whoever reads them: NCCL's and SGLang's own."""

from __future__ import annotations

from search_spaces import nccl, sglang_variables


def value_problem(name: str, value: str | None) -> str | None:
    """What its reader would refuse, ignore or take for another value; `None` if nothing."""
    return nccl.value_problem(name, value) or sglang_variables.value_problem(name, value)


def canonical_value(name: str, value: str) -> str:
    """The one spelling of a value; what is wrong stays as it is."""
    return sglang_variables.canonical_value(name, nccl.canonical_value(name, value))


def unknown_variable(name: str) -> str | None:
    """What to know of a variable that nobody reads; `None` if it is read, or nobody can tell."""
    return nccl.unknown_variable(name) or sglang_variables.unknown_variable(name)
