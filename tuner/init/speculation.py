"""Speculation sub-spaces that are worth the launches of a study, with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NGRAM_DRAFT_TOKENS, Shape, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION, Configuration
from search_spaces.flags.options import options
from search_spaces.rules.defaults import default_speculation, model_family
from search_spaces.rules.legality import violations
from search_spaces.space.space import Space
from tuner.init.models import has_mtp_layers, known_draft

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.flags.options import Version
    from search_spaces.study_file.study import Study
    from tuner.init.today import Today

MANY = 8
"""Concurrent requests from which trees are not worth a launch."""

_MANY_MORE = 32
_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_TREE_TOKENS = (8, 16)
_NGRAM_TOKENS = (4, 8, 12, 16)
_NGRAM_DEVICES = ("cuda", "cpu", "xpu")
_NO_ADAPTIVE = (
    "enable-dp-attention",
    "enable-multi-layer-eagle",
    "enable-two-batch-overlap",
    "enable-pdmux",
)
_CHAIN_ONLY = ("speculative-use-rejection-sampling", "speculative-use-block-verification")
# Adaptive speculation starts with its deepest candidate. SGLang 0.5.17 sizes the logits buffer by
# the first number of steps, and crashes in graph capture if a candidate needs more (seen on two
# H200 with 3 steps); 0.5.23 sizes the buffer by the deepest candidate.
_ADAPTIVE_STEPS = 7
_ADAPTIVE = "speculative-adaptive"


@dataclass(frozen=True, slots=True)
class SubSpace:
    """A speculation sub-space.

    Attributes:
        algorithm: Spelling of the study file.
        keys: Other keys of the study file with their choices.
        comments: Comments by key.
    """

    algorithm: str
    keys: Mapping[str, object] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)

    @property
    def adaptive(self) -> bool:
        """Whether SGLang chooses the draft steps."""
        flags = self.keys.get("flags")
        return isinstance(flags, dict) and _ADAPTIVE in flags


@dataclass(frozen=True, slots=True)
class Speculations:
    """Speculation sub-spaces of a study.

    Attributes:
        parts: Sub-spaces; the first one is no speculation.
        remarks: Comments at the end of the list.
        notes: Sentences for the user.
    """

    parts: tuple[SubSpace, ...]
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def propose(today: Today, fewest: int, version: Version | None = None) -> Speculations:
    """Propose sub-spaces for today's algorithm, or for the best one without further downloads.

    Args:
        today: The server.
        fewest: Concurrent requests of the quietest operating point.
        version: SGLang version, if known.
    """
    none = SubSpace(NO_SPECULATION, {}, {"algorithm": "plain decoding can be the fastest"})
    algorithm, why, notes = _algorithm(today)
    if algorithm is None:
        return Speculations((none,), notes=notes)
    remarks: tuple[str, ...] = ()
    keys: dict[str, object] = {}
    comments = {"algorithm": why}
    match ALGORITHMS[canonical_algorithm(algorithm)].shape:
        case Shape.LOOKUP:
            keys["num_draft_tokens"] = _with(_NGRAM_TOKENS, today.num_draft_tokens)
            comments["num_draft_tokens"] = f"SGLang's default is {NGRAM_DRAFT_TOKENS} (0.5.23)"
            if _needs_one_branch(today):
                keys["flags"] = {"speculative-ngram-max-bfs-breadth": [1]}
        case Shape.BLOCK:
            if today.num_draft_tokens is not None:
                keys["num_draft_tokens"] = today.num_draft_tokens
                comments["num_draft_tokens"] = "block size of today's command"
            remark = (
                f"{algorithm} has one number, the width of the verify. A smaller block can be "
                "faster if accept lengths are short: num_draft_tokens: [8, 16]"
            )
            remarks = (remark,)
        case _:
            last, comments["num_steps"] = _last_step(fewest, today)
            keys["num_steps"] = {"from": 1, "to": last}
            topk, tokens, comments["topk"], remarks = _shape(today, fewest)
            keys["topk"] = _one(topk)
            if tokens:
                keys["num_draft_tokens"] = _one(tokens)
                comments["num_draft_tokens"] = "if topk > 1; a chain verifies num_steps + 1"
    parts = [none, SubSpace(algorithm, keys, comments)]
    reason = _no_adaptive(today, algorithm, version)
    if reason is None:
        parts.append(_adaptive(today, algorithm))
    elif today.adaptive:
        notes = (*notes, f"adaptive speculation is left out: {reason}")
    return Speculations(tuple(parts), remarks, notes)


def without_illegal(speculations: Speculations, study: Study) -> Speculations:
    """Drop the algorithms that have no legal point beside today's flags, with a note on each.

    Args:
        speculations: Sub-spaces that the study was written from.
        study: The study as read back.
    """
    legal = {point.speculation.algorithm for point in Space(study)}
    dropped = [
        p.algorithm for p in speculations.parts if canonical_algorithm(p.algorithm) not in legal
    ]
    if not dropped:
        return speculations
    notes = list(speculations.notes)
    for algorithm in dict.fromkeys(dropped):
        speculation = default_speculation(canonical_algorithm(algorithm), model_family(study.model))
        broken = violations(Configuration.of(speculation), study)
        reason = str(broken[0]) if broken else "none of its settings is legal with the other flags"
        notes.append(f"{algorithm} is left out: {reason}")
    parts = tuple(part for part in speculations.parts if part.algorithm not in dropped)
    return replace(speculations, parts=parts, remarks=(), notes=tuple(notes))


def _algorithm(today: Today) -> tuple[str | None, str, tuple[str, ...]]:
    """Return the algorithm (`None`: no speculation), the reason, and notes."""
    if today.algorithm != NO_SPECULATION:
        return today.algorithm, today.why_algorithm, ()
    if (reason := has_mtp_layers(today.model)) is not None:
        return "NEXTN", f"needs no draft: {reason}", ()
    hint = "a draft model can be much faster than n-grams: `--draft PATH --algorithm EAGLE3`"
    if (draft := known_draft(today.model)) is not None:
        hint = f"this model has a public EAGLE-3 draft: `--draft {draft}`"
    if today.flags.get("device", "cuda") not in _NGRAM_DEVICES:
        return None, "", (hint,)
    if today.flags.get("enable-dp-attention"):
        without = "NGRAM does not support DP attention (SGLang 0.5.23), so nothing speculates"
        return None, "", (f"{without}; {hint}",)
    return "NGRAM", "needs no draft: takes the next tokens from earlier text", (hint,)


def _needs_one_branch(today: Today) -> bool:
    """Whether pages of several tokens allow one branch only (speculative_hook.py:1356, 0.5.23)."""
    given = "speculative-ngram-max-bfs-breadth" in today.flags
    paged = today.number("page-size", 1) > 1
    return paged and not given and today.flags.get("attention-backend") != "flashinfer"


def _last_step(fewest: int, today: Today) -> tuple[int, str]:
    if fewest >= _MANY_MORE:
        last, why = 3, f"{fewest} requests fill the GPU; published best depths: 1 to 3"
    elif fewest >= MANY:
        last, why = 5, "deep drafts gain less if more requests share a batch"
    else:
        last, why = 7, "published best depths for few requests: 2 to 7"
    if today.num_steps is not None and today.num_steps > last:
        return today.num_steps, f"up to today's {today.num_steps}; {why}"
    return last, why


def _shape(today: Today, fewest: int) -> tuple[Sequence[int], Sequence[int], str, tuple[str, ...]]:
    """Return topk, draft tokens, the reason, and remarks."""
    if today.topk is not None and today.topk > 1:
        tokens = _with(_TREE_TOKENS, today.num_draft_tokens)
        return (1, today.topk), tokens, "a chain, and today's tree", ()
    if fewest >= MANY:
        return (1,), (), f"a chain: trees cost more than they gain from {MANY} requests on", ()
    if _allows_trees(today):
        why = "a chain was faster in 53 of 60 published cells (SpecBundle)"
        return (1, 4), _TREE_TOKENS, why, ()
    remark = (
        "To try trees, set topk: [1, 4] with num_draft_tokens: [8, 16]. Trees were faster in 7 of "
        "60 published cells (SpecBundle). Set attention-backend under server.flags first, because "
        "SGLang selects another backend for trees on some GPUs (0.5.23)."
    )
    return (1,), (), "a chain; for trees see below", (remark,)


def _allows_trees(today: Today) -> bool:
    """Whether the command names a backend that supports trees, so that nothing else changes."""
    names = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    given = [today.flags[name] for name in names if today.flags.get(name) is not None]
    if "attention-backend" not in today.flags or today.flags.get("enable-multi-layer-eagle"):
        return False
    if any(today.flags.get(name) for name in _CHAIN_ONLY):
        return False
    return all(backend in _TREE_BACKENDS for backend in given)


def _no_adaptive(today: Today, algorithm: str, version: Version | None) -> str | None:
    """Why adaptive speculation is not supported, or `None` (`adaptive_spec_params.py`, 0.5.23)."""
    if canonical_algorithm(algorithm) not in {"EAGLE", "EAGLE3"}:
        return f"{algorithm} does not support it"
    for name in _NO_ADAPTIVE:
        if today.flags.get(name):
            return f"{name} does not support it"
    if version is not None and _ADAPTIVE not in options(version):
        return f"SGLang {version} does not have it"
    return None


def _adaptive(today: Today, algorithm: str) -> SubSpace:
    steps = today.num_steps if today.adaptive and today.num_steps else _ADAPTIVE_STEPS
    flags = {name: [value] for name, value in today.adaptive.items()} or {_ADAPTIVE: [True]}
    why = "adaptive: SGLang changes the steps at run time (0.5.23)"
    return SubSpace(algorithm, {"num_steps": steps, "topk": 1, "flags": flags}, {"algorithm": why})


def _with(choices: tuple[int, ...], today: int | None) -> list[int]:
    return sorted({*choices, *((today,) if today is not None and today > 1 else ())})


def _one(choices: Sequence[int]) -> object:
    return choices[0] if len(choices) == 1 else choices
