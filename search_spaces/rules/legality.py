"""Legality and canonical form of configurations.

`canonical` applies what SGLang would silently rewrite. `violations` lists rules that SGLang would
refuse or crash on. `search_spaces.rules` has the rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.algorithms import (
    ALGORITHMS,
    Shape,
    canonical_algorithm,
    default_speculation,
    model_family,
)
from search_spaces.configuration import Configuration, Speculation, Value
from search_spaces.flags.flags import canonical_env_value, canonical_flags
from search_spaces.rules import RULES
from search_spaces.rules.rule import Candidate
from search_spaces.rules.speculation import VERSION_RULES
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.rules.rule import Violation
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


def canonical(configuration: Configuration, study: Study) -> Configuration:
    """Canonical form of a configuration: equal for every spelling of a server. Idempotent.

    - Algorithm names are upper case, NEXTN is EAGLE. Numbers that SGLang overwrites have SGLang's
    value (at topk 1 `num_draft_tokens` is `num_steps + 1`), or `None` if they do not apply.
    - `page-size` has the value that the attention backend requires. `enable-mixed-chunk` is removed
    if SGLang drops it.
    - Without speculation there are no speculation numbers, no `draft_tp` and no `speculative-...`
    flags.
    - `draft_tp` defaults to the target's tp-size; `None` without a draft.
    - Every flag and variable that the study varies is present; `None` is not set, and so is a flag
    that is `False`.
    - Other flags and variables are present only if they change the study's server: a fixed one with
    another value, a removed one (`None`), or one that the study does not have.
    """
    speculation = canonical_speculation(configuration.speculation, study)
    flags = canonical_tuned_flags(dict(configuration.flags), speculation, study)
    env = canonical_tuned_env(dict(configuration.env), study)
    draft_tp = canonical_draft_tp(configuration.draft_tp, speculation, flags, study)
    return Configuration.of(speculation, draft_tp=draft_tp, flags=flags, env=env)


def violations(configuration: Configuration, study: Study) -> tuple[Violation, ...]:
    """Rules of SGLang and NCCL that a configuration breaks in the study; empty if legal.

    Conditions of the study (`search_spaces.space.conditions`) are not checked here, because SGLang
    accepts configurations that break them.
    """
    return broken_rules(candidate(canonical(configuration, study), study))


def version_violations(
    configuration: Configuration, study: Study, version: str | None
) -> tuple[Violation, ...]:
    """Rules of a version that a configuration breaks in a study, without the general rules."""
    rules = VERSION_RULES.get(version or "", ())
    if not rules:
        return ()
    server = candidate(canonical(configuration, study), study)
    found = (rule.violation(server) for rule in rules)
    return tuple(violation for violation in found if violation is not None)


def broken_rules(server: Candidate) -> tuple[Violation, ...]:
    """Rules that a server breaks."""
    found = (rule.violation(server) for rule in RULES)
    return tuple(violation for violation in found if violation is not None)


def candidate(configuration: Configuration, study: Study) -> Candidate:
    """The server that rules check: a canonical configuration with the study's fixed part."""
    return Candidate(
        speculation=configuration.speculation,
        draft_tp=configuration.draft_tp,
        flags=_given(study.server.flags | dict(configuration.flags)),
        env=_given(study.server.env | dict(configuration.env)),
        has_draft_model=study.model.draft is not None,
    )


def canonical_speculation(speculation: Speculation, study: Study) -> Speculation:
    """Canonical speculation numbers; missing and illegal numbers stay unchanged."""
    algorithm = canonical_algorithm(speculation.algorithm)
    if algorithm not in ALGORITHMS:
        return replace(speculation, algorithm=algorithm)
    steps, topk = speculation.num_steps, speculation.topk
    tokens = speculation.num_draft_tokens
    default = default_speculation(algorithm, model_family(study.model))
    match ALGORITHMS[algorithm].shape:
        case Shape.NONE:
            return default
        case Shape.LOOKUP | Shape.BLOCK:
            return default if tokens is None else replace(default, num_draft_tokens=tokens)
        case Shape.TREE:
            if steps is None and topk is None and tokens is None:
                return default
            if topk == 1 and steps is not None:
                tokens = steps + 1
            return Speculation(algorithm, steps, topk, tokens)


def canonical_tuned_flags(
    flags: Mapping[str, Value], speculation: Speculation, study: Study
) -> dict[str, Value]:
    """Canonical flags of a configuration with this speculation."""
    fixed = study.server.flags
    out: dict[str, Value] = dict.fromkeys(study.space.tuned_flags)
    out |= {
        name: value
        for name, value in canonical_flags(flags).items()
        if name in out or not _same(value, fixed.get(name))
    }
    server = Candidate(speculation, None, _given(fixed | out))
    if "page-size" in out and (out["page-size"] or 1) != server.page_size:
        out["page-size"] = server.page_size  # the value that the attention backend requires
    # Without an algorithm SGLang silently ignores these flags (0.5.23).
    ignored = [name for name in out if name.startswith("speculative-")]
    if speculation.enabled:
        drops = {
            "enable-mixed-chunk": server.drops_mixed_chunk,
            "speculative-adaptive": server.drops_adaptive,
        }
        ignored = [name for name, dropped in drops.items() if dropped and out.get(name) is not None]
    for name in ignored:
        if name in study.space.tuned_flags:
            out[name] = None
        else:
            del out[name]
    return out


def canonical_tuned_env(env: Mapping[str, Value], study: Study) -> dict[str, Value]:
    """Canonical variables of a configuration."""
    fixed = study.server.env
    out: dict[str, str | None] = dict.fromkeys(study.space.env)
    for name, value in env.items():
        text = canonical_env_value(value)
        # A removed variable differs from one that the caller's environment decides.
        if name in out or name not in fixed or text != fixed[name]:
            out[name] = text
    return dict(canonical_env(out, fixed))


def canonical_draft_tp(
    draft_tp: int | None, speculation: Speculation, flags: Mapping[str, Value], study: Study
) -> int | None:
    """Tensor-parallel size of the draft; defaults to the target's."""
    algorithm = ALGORITHMS.get(speculation.algorithm)
    if algorithm is None or not algorithm.has_draft:
        return None
    if draft_tp is not None:
        return draft_tp
    tp = {**study.server.flags, **flags}.get("tp-size") or 1
    return tp if isinstance(tp, int) else None


def _given(values: Mapping[str, FixedValue]) -> dict[str, FixedValue]:
    return {name: value for name, value in values.items() if value is not None}


def _same(value: Value, fixed: FixedValue) -> bool:
    return value == fixed and isinstance(value, bool) == isinstance(fixed, bool)
