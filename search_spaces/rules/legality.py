"""Which configurations SGLang runs, and the one form of each.

What SGLang would silently rewrite is canonicalised (`canonical`); what it would refuse, or die of,
is a violation that names its rule (`violations`). The rules themselves are in `rules`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, Shape, canonical_algorithm
from search_spaces.configuration import Configuration, Speculation, Value
from search_spaces.flags.flags import canonical_env_value, canonical_flags
from search_spaces.rules import RULES
from search_spaces.rules.candidate import Candidate
from search_spaces.rules.defaults import default_speculation, model_family
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.rules.violation import Violation
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


def canonical(configuration: Configuration, study: Study) -> Configuration:
    """The one form of a configuration: every spelling of a server gives the same. Idempotent.

    - Algorithm names are upper case, NEXTN is EAGLE; numbers that SGLang overwrites are what it
      writes (at topk 1 `num_draft_tokens` is `num_steps + 1`), or `None` where they do not apply.
    - `page-size` is what the attention backend takes, `enable-mixed-chunk` goes where SGLang drops
      it.
    - Without speculation the other speculation numbers, `draft_tp` and `speculative-...` flags go.
    - `draft_tp` is the target's tp-size where nothing else was asked for, `None` without a draft.
    - Every flag and variable that the study varies, in all sub-spaces or in some, is present;
      `None` is "not set", and so is a flag that is `False`.
    - Others are there only if they change the study's server: a fixed flag or variable that has
      another value, or is taken away (`None`), or one that the study does not know.
    """
    speculation = canonical_speculation(configuration.speculation, study)
    flags = canonical_tuned_flags(dict(configuration.flags), speculation, study)
    env = canonical_tuned_env(dict(configuration.env), study)
    draft_tp = canonical_draft_tp(configuration.draft_tp, speculation, flags, study)
    return Configuration.of(speculation, draft_tp=draft_tp, flags=flags, env=env)


def violations(configuration: Configuration, study: Study) -> tuple[Violation, ...]:
    """The rules of SGLang and NCCL that a configuration breaks in the study; empty if legal.

    The study's own conditions (`search_spaces.space.conditions`) are not checked here: SGLang
    accepts a configuration that breaks one.
    """
    return broken_rules(candidate(canonical(configuration, study), study))


def broken_rules(server: Candidate) -> tuple[Violation, ...]:
    """The rules that a server breaks."""
    found = (rule.violation(server) for rule in RULES)
    return tuple(violation for violation in found if violation is not None)


def candidate(configuration: Configuration, study: Study) -> Candidate:
    """What the rules look at: a canonical configuration on top of the study's server."""
    return Candidate(
        speculation=configuration.speculation,
        draft_tp=configuration.draft_tp,
        flags=_given(study.server.flags | dict(configuration.flags)),
        env=_given(study.server.env | dict(configuration.env)),
        has_draft_model=study.model.draft is not None,
    )


def canonical_speculation(speculation: Speculation, study: Study) -> Speculation:
    """The one form of the speculation numbers; what is missing or illegal stays so."""
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
    """The one form of a configuration's flags, beside this speculation."""
    fixed = study.server.flags
    out: dict[str, Value] = dict.fromkeys(study.space.tuned_flags)
    out |= {
        name: value
        for name, value in canonical_flags(flags).items()
        if name in out or not _same(value, fixed.get(name))
    }
    server = Candidate(speculation, None, _given(fixed | out))
    if "page-size" in out and (out["page-size"] or 1) != server.page_size:
        out["page-size"] = server.page_size  # what the attention backend takes
    # Without an algorithm SGLang ignores them without a word (0.5.23).
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
    """The one form of a configuration's variables."""
    fixed = study.server.env
    out: dict[str, str | None] = dict.fromkeys(study.space.env)
    for name, value in env.items():
        text = canonical_env_value(value)
        # A variable that is taken away is not one that is left to the caller's environment.
        if name in out or name not in fixed or text != fixed[name]:
            out[name] = text
    return dict(canonical_env(out, fixed))


def canonical_draft_tp(
    draft_tp: int | None, speculation: Speculation, flags: Mapping[str, Value], study: Study
) -> int | None:
    """The draft's tensor-parallel size: the target's, unless another was asked for."""
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
