"""Sub-spaces of speculation that are worth launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NGRAM_DRAFT_TOKENS, Shape, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.options import options
from tuner.init.models import has_mtp_layers, known_draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.flags.options import Version
    from search_spaces.study_file.values import FixedValue
    from tuner.init.today import Today

MANY = 8
"""Requests in flight from which on trees are no longer worth a launch."""

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
# Adaptive speculation starts at its largest candidate. 0.5.17 sizes its logits buffer for the first
# number of steps and crashes in graph capture if a candidate needs more (two H200, start at 3).
# 0.5.23 sizes the buffer for the largest candidate.
_ADAPTIVE_STEPS = 7


@dataclass(frozen=True, slots=True)
class SubSpace:
    """A sub-space of the study.

    Attributes:
        algorithm: Name of the algorithm in the file.
        steps: First and last number of draft steps; `None` without steps.
        topk: Values of topk.
        tokens: Values of draft tokens.
        flags: Flags of this sub-space, one value each.
        why: Comment on the algorithm.
        why_steps: Comment on the steps.
        why_topk: Comment on topk.
        why_tokens: Comment on the draft tokens.
    """

    algorithm: str
    steps: tuple[int, int] | None = None
    topk: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    flags: Mapping[str, FixedValue] = field(default_factory=dict)
    why: str = ""
    why_steps: str = ""
    why_topk: str = ""
    why_tokens: str = ""


@dataclass(frozen=True, slots=True)
class Speculations:
    """Sub-spaces and comments.

    Attributes:
        parts: Sub-spaces; the first has no speculation.
        remarks: Comments at the end of the list.
        notes: Notes for the user.
    """

    parts: tuple[SubSpace, ...]
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def propose(today: Today, *, fewest: int, version: Version | None = None) -> Speculations:
    """Propose sub-spaces for today's algorithm, or for the best one that needs no further files.

    Args:
        today: The server.
        fewest: Requests in flight at the operating point with the lowest load.
        version: SGLang version, if known.
    """
    none = SubSpace(NO_SPECULATION, why="plain decoding may win, and is let win")
    algorithm, why, notes = _algorithm(today)
    if algorithm is None:
        return Speculations((none,), notes=notes)
    remarks: tuple[str, ...] = ()
    match ALGORITHMS[canonical_algorithm(algorithm)].shape:
        case Shape.LOOKUP:
            part = SubSpace(
                algorithm,
                tokens=_with(_NGRAM_TOKENS, today.num_draft_tokens),
                flags=_ngram_flags(today),
                why=why,
                why_tokens=f"SGLang's default is {NGRAM_DRAFT_TOKENS} (0.5.23)",
            )
        case Shape.BLOCK:
            block = () if today.num_draft_tokens is None else (today.num_draft_tokens,)
            said = "the block size of today's command" if block else ""
            part = SubSpace(algorithm, tokens=block, why=why, why_tokens=said)
            remark = (
                f"{algorithm}: the width of the verify is its one number; a smaller block may win "
                "where accept lengths are short: num_draft_tokens: [8, 16]"
            )
            remarks = (remark,)
        case _:
            last, why_steps = _last_step(fewest, today)
            topk, tokens, why_topk, remarks = _shape(today, fewest)
            said = "where topk > 1; a chain verifies num_steps + 1" if tokens else ""
            part = SubSpace(algorithm, (1, last), topk, tokens, {}, why, why_steps, why_topk, said)
    parts = [none, part]
    reason = _no_adaptive(today, algorithm, version)
    if reason is None:
        parts.append(_adaptive(today, algorithm))
    elif today.adaptive:
        notes = (*notes, f"adaptive speculation is left out: {reason}")
    return Speculations(tuple(parts), remarks, notes)


def _algorithm(today: Today) -> tuple[str | None, str, tuple[str, ...]]:
    if today.algorithm != NO_SPECULATION:
        return today.algorithm, today.why_algorithm, ()
    if (reason := has_mtp_layers(today.model)) is not None:
        return "NEXTN", f"needs no draft: {reason}", ()
    hint = "a draft model may be worth far more than n-grams: `--draft PATH --algorithm EAGLE3`"
    if (draft := known_draft(today.model)) is not None:
        hint = f"there is a public EAGLE-3 draft for this model: `--draft {draft}`"
    if today.flags.get("device", "cuda") not in _NGRAM_DEVICES:
        return None, "", (hint,)
    if today.flags.get("enable-dp-attention"):
        without = "NGRAM does not run with DP attention (SGLang 0.5.23), so nothing speculates"
        return None, "", (f"{without}; {hint}",)
    return "NGRAM", "needs no draft: it finds the next tokens in the text so far", (hint,)


def _ngram_flags(today: Today) -> dict[str, FixedValue]:
    """One branch: pages of several tokens allow no more (speculative_hook.py:1356, 0.5.23)."""
    breadth = "speculative-ngram-max-bfs-breadth"
    paged = today.number("page-size", 1) > 1 and breadth not in today.flags
    return {breadth: 1} if paged and today.flags.get("attention-backend") != "flashinfer" else {}


def _last_step(fewest: int, today: Today) -> tuple[int, str]:
    if fewest >= _MANY_MORE:
        last, why = 3, f"{fewest} requests fill the GPU: published best depths were 1 to 3"
    elif fewest >= MANY:
        last, why = 5, "deep drafts pay less the more requests share a batch"
    else:
        last, why = 7, "published best depths at few requests were 2 to 7"
    if today.num_steps is not None and today.num_steps > last:
        return today.num_steps, f"up to today's {today.num_steps}; {why}"
    return last, why


def _shape(
    today: Today, fewest: int
) -> tuple[tuple[int, ...], tuple[int, ...], str, tuple[str, ...]]:
    """Values of topk and draft tokens, with comments."""
    if today.topk is not None and today.topk > 1:
        tokens = _with(_TREE_TOKENS, today.num_draft_tokens)
        return (1, today.topk), tokens, "a chain, and today's tree", ()
    if fewest >= MANY:
        why = f"a chain: trees cost more than they bring from {MANY} requests on"
        return (1,), (), why, ()
    if _allows_trees(today):
        why = "a chain won 53 of 60 published cells, a tree 7 (SpecBundle, batch 8; 8B: batch 1)"
        return (1, 4), _TREE_TOKENS, why, ()
    remark = (
        "Trees: topk: [1, 4] with num_draft_tokens: [8, 16]. They won 7 of 60 published cells "
        "(SpecBundle). Name an attention-backend under server.flags first: SGLang takes another "
        "one for trees on some GPUs (0.5.23)."
    )
    return (1,), (), "a chain; trees are below", (remark,)


def _allows_trees(today: Today) -> bool:
    """Whether the command names a backend that runs trees, so that trees change nothing else."""
    names = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    given = [today.flags[name] for name in names if today.flags.get(name) is not None]
    if "attention-backend" not in today.flags or today.flags.get("enable-multi-layer-eagle"):
        return False
    if any(today.flags.get(name) for name in _CHAIN_ONLY):
        return False
    return all(backend in _TREE_BACKENDS for backend in given)


def _no_adaptive(today: Today, algorithm: str, version: Version | None) -> str | None:
    """Why adaptive speculation cannot run; `None` if it can (`adaptive_spec_params.py`, 0.5.23)."""
    if canonical_algorithm(algorithm) not in {"EAGLE", "EAGLE3"}:
        return f"it does not run with {algorithm}"
    for name in _NO_ADAPTIVE:
        if today.flags.get(name):
            return f"it does not run with {name}"
    if version is not None and "speculative-adaptive" not in options(version):
        return f"SGLang {version} does not have it"
    return None


def _adaptive(today: Today, algorithm: str) -> SubSpace:
    steps = today.num_steps or _ADAPTIVE_STEPS if today.adaptive else _ADAPTIVE_STEPS
    flags = dict(today.adaptive) or {"speculative-adaptive": True}
    return SubSpace(
        algorithm,
        (steps, steps),
        (1,),
        (),
        flags,
        why="adaptive: SGLang picks the steps as it runs (0.5.23); a fixed depth has to beat it",
    )


def _with(choices: tuple[int, ...], today: int | None) -> tuple[int, ...]:
    return tuple(sorted({*choices, *((today,) if today is not None and today > 1 else ())}))
