"""The legality rules, each a small named value with the place where it was read.

Paths are under `sglang/srt/` of SGLang 0.5.23. To add a rule, write a function that gives the
message for a candidate that breaks it (else `None`) and decorate it. A rule sees the flags that
were asked for: what SGLang resolves from the model or the GPU shows only after a launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NAMES, Shape
from search_spaces.nccl import BOUNDED, crossed_bounds, nothing_left
from search_spaces.nccl_variables import NEWEST
from search_spaces.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from search_spaces.candidate import Candidate

ENGINE = "SGLang 0.5.23"
"""The version that the rules were read from."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        name: Stable, shown with every violation.
        source: Version, file and line.
        check: The message for a candidate that breaks it, else `None`.
        env: Environment variables that it looks at; none by default.
        server: Whether it looks at anything else. A rule of the environment alone is checked
            once per environment, whatever the server.
    """

    name: str
    source: str
    check: Callable[[Candidate], str | None]
    env: frozenset[str] = frozenset()
    server: bool = True

    def violation(self, server: Candidate) -> Violation | None:
        """The violation of a candidate that breaks it, else `None`."""
        message = self.check(server)
        return None if message is None else Violation(self.name, message, self.source)


_rules: list[Rule] = []


def _rule(source: str) -> Callable[[Callable[[Candidate], str | None]], None]:
    def register(check: Callable[[Candidate], str | None]) -> None:
        _rules.append(Rule(check.__name__.lstrip("_"), f"{ENGINE}, {source}", check))

    return register


def _nccl_rule(
    source: str, env: Iterable[str]
) -> Callable[[Callable[[Candidate], str | None]], None]:
    """A rule of NCCL's, which looks at these variables and at nothing else."""

    def register(check: Callable[[Candidate], str | None]) -> None:
        name = check.__name__.lstrip("_")
        _rules.append(Rule(name, f"NCCL {NEWEST}, {source}", check, frozenset(env), server=False))

    return register


@_rule("speculative/spec_info.py:49-65 (UNO is not supported by the tuner)")
def _unknown_algorithm(server: Candidate) -> str | None:
    if server.speculation.algorithm in ALGORITHMS:
        return None
    return f"{server.speculation.algorithm} is not among {', '.join(NAMES)}"


@_rule("seen on a CPU: passes all checks, then the scheduler dies, exit 137")
def _draft_model_missing(server: Candidate) -> str | None:
    known = ALGORITHMS.get(server.speculation.algorithm)
    if known is None or not known.needs_draft or server.has_draft_model:
        return None
    return f"{known.name} needs a draft model; set model.draft"


@_rule("arg_groups/speculative_hook.py:1160-1163 and :1274, managers/utils.py:497")
def _numbers_missing(server: Candidate) -> str | None:
    if server.shape is not Shape.TREE:
        return None
    numbers = server.speculation
    for name in ("num_steps", "topk", "num_draft_tokens"):
        if getattr(numbers, name) is None:
            return f"{numbers.algorithm} without {name}, while others of the three are given"
    return None


@_rule("not checked there; 0 steps is no baseline, and less fails in the first draft")
def _steps_positive(server: Candidate) -> str | None:
    steps = server.speculation.num_steps
    if server.shape is not Shape.TREE or steps is None or steps >= 1:
        return None
    return f"num_steps {steps} is less than 1; for no speculation take algorithm none"


@_rule("not checked there; the first draft step takes no token")
def _topk_positive(server: Candidate) -> str | None:
    topk = server.speculation.topk
    if server.shape is not Shape.TREE or topk is None or topk >= 1:
        return None
    return f"topk {topk} is less than 1"


@_rule("not checked there (DSPARK: arg_groups/speculative_hook.py:846-850)")
def _draft_tokens_minimum(server: Candidate) -> str | None:
    tokens = server.speculation.num_draft_tokens
    # A chain's tokens follow from its steps, which have a rule of their own.
    if server.shape is Shape.NONE or server.is_chain or tokens is None or tokens >= 2:
        return None
    return f"num_draft_tokens {tokens} is less than 2: the bonus token's slot and one draft"


@_rule("speculative/eagle_utils.py:110 (torch.topk fails in the warm-up request, exit 137)")
def _tree_capacity(server: Candidate) -> str | None:
    spec = server.speculation
    if not server.is_tree or not (spec.num_steps and spec.topk and spec.num_draft_tokens):
        return None
    if spec.num_steps < 1:
        return None
    capacity = spec.topk + (spec.num_steps - 1) * spec.topk**2
    if spec.num_draft_tokens - 1 <= capacity:
        return None
    return (
        f"num_draft_tokens {spec.num_draft_tokens} is more than a tree of {spec.num_steps} steps "
        f"and topk {spec.topk} holds; at most {capacity + 1}"
    )


@_rule("arg_groups/speculative_hook.py:1176-1180")
def _trtllm_mha_chain_only(server: Candidate) -> str | None:
    if not server.is_tree or "trtllm_mha" not in server.attention_backends:
        return None
    return f"attention backend trtllm_mha takes only topk 1, not {server.speculation.topk}"


_PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")


@_rule("arg_groups/speculative_hook.py:1271-1282")
def _paged_tree_backend(server: Candidate) -> str | None:
    if not server.is_tree or server.page_size <= 1:
        return None
    backend = server.flags.get("attention-backend")
    # Unset, SGLang takes one of the three on GPUs, and one that cannot on CPUs.
    if backend in _PAGED_TREE_BACKENDS or (backend is None and server.flags.get("device") != "cpu"):
        return None
    return (
        f"topk {server.speculation.topk} with page-size {server.page_size} runs only on "
        f"{', '.join(_PAGED_TREE_BACKENDS)}, not on {backend or 'the CPU'}"
    )


@_rule("arg_groups/speculative_hook.py:1356-1366")
def _paged_ngram_backend(server: Candidate) -> str | None:
    if server.shape is not Shape.LOOKUP or server.page_size <= 1:
        return None
    if server.number("speculative-ngram-max-bfs-breadth", 10) <= 1:
        return None
    backend = server.flags.get("attention-backend")
    if backend == "flashinfer":
        return None
    return (
        f"NGRAM with page-size {server.page_size} runs only on attention backend flashinfer, "
        f"named as such, not on {backend or 'the default'}"
    )


@_rule("arg_groups/speculative_hook.py:1077-1084 and :1367-1371")
def _attention_dp(server: Candidate) -> str | None:
    if server.speculation.algorithm not in {"STANDALONE", "NGRAM"} or not server.attention_dp:
        return None
    return f"{server.speculation.algorithm} does not run with data-parallel attention"


_ADAPTIVE_STEPS = (0, 1, 3, 5, 7)


@_rule("arg_groups/speculative_hook.py:1411-1421")
def _adaptive_steps(server: Candidate) -> str | None:
    if not server.flags.get("speculative-adaptive") or server.drops_adaptive:
        return None
    # The candidates of a configuration file are not known here.
    if "speculative-adaptive-config" in server.flags or not server.is_chain:
        return None
    steps = server.speculation.num_steps
    if steps in _ADAPTIVE_STEPS:
        return None
    return f"speculative-adaptive starts only at num_steps {_ADAPTIVE_STEPS}, not at {steps}"


@_rule("arg_groups/speculative_hook.py:1211-1251")
def _rejection_sampling(server: Candidate) -> str | None:
    spec = server.speculation
    if not server.flags.get("speculative-use-rejection-sampling") or not spec.enabled:
        return None
    if server.shape is Shape.TREE and spec.algorithm not in {"EAGLE", "EAGLE3"}:
        return f"speculative-use-rejection-sampling does not run with {spec.algorithm}"
    if server.is_tree:
        return f"speculative-use-rejection-sampling takes only topk 1, not {spec.topk}"
    return None


@_rule("arg_groups/speculative_hook.py:176-184")
def _block_verification(server: Candidate) -> str | None:
    spec = server.speculation
    if not server.flags.get("speculative-use-block-verification") or not spec.enabled:
        return None
    if spec.algorithm not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}:
        return f"speculative-use-block-verification does not run with {spec.algorithm}"
    if server.is_tree:  # It switches rejection sampling on, which takes chains only.
        return f"speculative-use-block-verification takes only topk 1, not {spec.topk}"
    return None


@_rule("arg_groups/speculative_hook.py:291-303 and :668-672")
def _block_device(server: Candidate) -> str | None:
    if server.shape is not Shape.BLOCK or server.flags.get("device") != "cpu":
        return None
    return f"{server.speculation.algorithm} does not run on a CPU"


@_rule("arg_groups/speculative_hook.py:319-322, arg_groups/validation_hook.py:119-160")
def _pipeline_parallel(server: Candidate) -> str | None:
    spec = server.speculation
    if server.number("pp-size", 1) <= 1 or not spec.enabled:
        return None
    if spec.algorithm not in {"EAGLE", "DSPARK"}:
        return f"{spec.algorithm} does not run with pp-size > 1; only EAGLE does"
    return None


@_rule("arg_groups/validation_hook.py:241-246")
def _chunk_divides_into_pages(server: Candidate) -> str | None:
    chunk, page = server.number("chunked-prefill-size", 0), server.page_size
    if chunk <= 0 or page < 1 or chunk % page == 0:
        return None
    return f"chunked-prefill-size {chunk} is not a multiple of page-size {page}"


@_rule("arg_groups/validation_hook.py:244 (page-size 0 divides by zero)")
def _page_size_positive(server: Candidate) -> str | None:
    return None if server.page_size >= 1 else f"page-size {server.page_size} is less than 1"


@_rule("the draft is split over ranks of the target's group")
def _draft_tp_divides_tp(server: Candidate) -> str | None:
    tp = server.number("tp-size", 1)
    if server.draft_tp is None or (server.draft_tp >= 1 and tp % server.draft_tp == 0):
        return None
    return f"draft_tp {server.draft_tp} does not divide the target's tp-size {tp}"


@_nccl_rule("src/graph/connect.cc:492-505, src/init.cc:2190, src/graph/paths.cc:980", BOUNDED)
def _nccl_bounds(server: Candidate) -> str | None:
    return next((message for _, _, message in crossed_bounds(server.env)), None)


@_nccl_rule("src/graph/tuning.cc:293-304, src/enqueue.cc:2052-2065", ("NCCL_ALGO", "NCCL_PROTO"))
def _nccl_nothing_left(server: Candidate) -> str | None:
    return nothing_left(server.env)


RULES: tuple[Rule, ...] = tuple(_rules)
"""Every rule, in the order in which violations are listed."""

RULE_FLAGS = frozenset(
    {
        "attention-backend",
        "attn-dp-size",
        "chunked-prefill-size",
        "decode-attention-backend",
        "device",
        "dp-size",
        "enable-dp-attention",
        "enable-multi-layer-eagle",
        "enable-pdmux",
        "enable-two-batch-overlap",
        "page-size",
        "pp-size",
        "prefill-attention-backend",
        "speculative-adaptive",
        "speculative-adaptive-config",
        "speculative-ngram-max-bfs-breadth",
        "speculative-use-block-verification",
        "speculative-use-rejection-sampling",
        "tp-size",
    }
)
"""Flags that the rules look at: two candidates equal in them are equally legal."""

RULE_ENV = frozenset[str]().union(*(rule.env for rule in RULES))
"""Environment variables that the rules look at."""
