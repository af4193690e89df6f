"""Rules of speculative decoding.

Paths are under `sglang/srt/` of SGLang 0.5.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.algorithms import ADAPTIVE_STEPS, ALGORITHMS, NAMES, Shape
from search_spaces.rules.rule import Rules
from search_spaces.sglang_variables import YES

if TYPE_CHECKING:
    from search_spaces.rules.rule import Candidate

speculation_rules = Rules()


@speculation_rules.add("speculative/spec_info.py:49-65 (UNO is not supported by the tuner)")
def _unknown_algorithm(server: Candidate) -> str | None:
    if server.speculation.algorithm in ALGORITHMS:
        return None
    return f"{server.speculation.algorithm} is not among {', '.join(NAMES)}"


@speculation_rules.add("seen on a CPU: passes all checks, then the scheduler dies, exit 137")
def _draft_model_missing(server: Candidate) -> str | None:
    known = ALGORITHMS.get(server.speculation.algorithm)
    if known is None or not known.needs_draft or server.has_draft_model:
        return None
    return f"{known.name} needs a draft model; set model.draft"


@speculation_rules.add("arg_groups/speculative_hook.py:1160-1163 and :1274, managers/utils.py:497")
def _numbers_missing(server: Candidate) -> str | None:
    if server.shape is not Shape.TREE:
        return None
    numbers = server.speculation
    for name in ("num_steps", "topk", "num_draft_tokens"):
        if getattr(numbers, name) is None:
            return f"{numbers.algorithm} without {name}, while others of the three are given"
    return None


@speculation_rules.add(
    "not checked there; 0 steps is no baseline, and less fails in the first draft"
)
def _steps_positive(server: Candidate) -> str | None:
    steps = server.speculation.num_steps
    if server.shape is not Shape.TREE or steps is None or steps >= 1:
        return None
    return f"num_steps {steps} is less than 1; for no speculation take algorithm none"


@speculation_rules.add("not checked there; the first draft step takes no token")
def _topk_positive(server: Candidate) -> str | None:
    topk = server.speculation.topk
    if server.shape is not Shape.TREE or topk is None or topk >= 1:
        return None
    return f"topk {topk} is less than 1"


@speculation_rules.add("not checked there (DSPARK: arg_groups/speculative_hook.py:846-850)")
def _draft_tokens_minimum(server: Candidate) -> str | None:
    tokens = server.speculation.num_draft_tokens
    # Draft tokens of a chain follow from its steps, which another rule checks.
    if server.shape is Shape.NONE or server.is_chain or tokens is None or tokens >= 2:
        return None
    return f"num_draft_tokens {tokens} is less than 2: the bonus token's slot and one draft"


@speculation_rules.add(
    "speculative/eagle_utils.py:110 (torch.topk fails in the warm-up request, exit 137)"
)
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


@speculation_rules.add("arg_groups/speculative_hook.py:1176-1180")
def _trtllm_mha_chain_only(server: Candidate) -> str | None:
    if not server.is_tree or "trtllm_mha" not in server.attention_backends:
        return None
    return f"attention backend trtllm_mha takes only topk 1, not {server.speculation.topk}"


_PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")


@speculation_rules.add("arg_groups/speculative_hook.py:1271-1282")
def _paged_tree_backend(server: Candidate) -> str | None:
    if not server.is_tree or server.page_size <= 1:
        return None
    if "trtllm_mha" in server.attention_backends:
        return None  # another rule refuses this
    backend = server.flags.get("attention-backend")
    # If unset, SGLang chooses one of these three on GPUs, and an unsuitable one on CPUs.
    if backend in _PAGED_TREE_BACKENDS or (backend is None and server.flags.get("device") != "cpu"):
        return None
    return (
        f"topk {server.speculation.topk} with page-size {server.page_size} runs only on "
        f"{', '.join(_PAGED_TREE_BACKENDS)}, not on {backend or 'the CPU'}"
    )


@speculation_rules.add("arg_groups/speculative_hook.py:1356-1366")
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


@speculation_rules.add("arg_groups/speculative_hook.py:1077-1084 and :1367-1371")
def _attention_dp(server: Candidate) -> str | None:
    if server.speculation.algorithm not in {"STANDALONE", "NGRAM"} or not server.attention_dp:
        return None
    return f"{server.speculation.algorithm} does not run with data-parallel attention"


@speculation_rules.add("arg_groups/speculative_hook.py:1411-1421")
def _adaptive_steps(server: Candidate) -> str | None:
    if not server.flags.get("speculative-adaptive") or server.drops_adaptive:
        return None
    # Candidates in a configuration file are unknown here.
    if "speculative-adaptive-config" in server.flags or not server.is_chain:
        return None
    steps = server.speculation.num_steps
    if steps in ADAPTIVE_STEPS:
        return None
    return f"speculative-adaptive starts only at num_steps {ADAPTIVE_STEPS}, not at {steps}"


@speculation_rules.add("arg_groups/speculative_hook.py:1211-1251")
def _rejection_sampling(server: Candidate) -> str | None:
    spec = server.speculation
    if not server.flags.get("speculative-use-rejection-sampling") or not spec.enabled:
        return None
    if server.shape is Shape.TREE and spec.algorithm not in {"EAGLE", "EAGLE3"}:
        return f"speculative-use-rejection-sampling does not run with {spec.algorithm}"
    if server.is_tree:
        return f"speculative-use-rejection-sampling takes only topk 1, not {spec.topk}"
    return _threshold(server) if server.shape is Shape.TREE else None


@speculation_rules.add("arg_groups/speculative_hook.py:176-184")
def _block_verification(server: Candidate) -> str | None:
    spec = server.speculation
    if not server.flags.get("speculative-use-block-verification"):
        return None
    # SGLang refuses the flag without speculation too, if every launch has it.
    if spec.algorithm not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}:
        return f"speculative-use-block-verification does not run with {spec.algorithm}"
    if server.flags.get("device") == "cpu":
        return "speculative-use-block-verification does not run on a CPU"
    if server.is_tree:  # The flag enables rejection sampling, which supports only chains.
        return f"speculative-use-block-verification takes only topk 1, not {spec.topk}"
    return _threshold(server) if server.shape is Shape.TREE else None


def _threshold(server: Candidate) -> str | None:
    """Return the setting that rejection sampling does not support, if any."""
    for name in ("speculative-accept-threshold-single", "speculative-accept-threshold-acc"):
        value = server.flags.get(name, 1)
        if value != 1:
            return f"{name} {value} is not taken beside rejection sampling; leave it at 1"
    return None


@speculation_rules.add("arg_groups/speculative_hook.py:291-303 and :668-672")
def _block_device(server: Candidate) -> str | None:
    if server.shape is not Shape.BLOCK or server.flags.get("device") != "cpu":
        return None
    return f"{server.speculation.algorithm} does not run on a CPU"


@speculation_rules.add(
    "arg_groups/speculative_hook.py:319-322 and :713-718, arg_groups/validation_hook.py:119-160",
    env=("SGLANG_ENABLE_PP_SPEC",),
)
def _pipeline_parallel(server: Candidate) -> str | None:
    spec = server.speculation
    if server.number("pp-size", 1) <= 1 or not spec.enabled:
        return None
    if spec.algorithm not in {"EAGLE", "DSPARK"}:
        return f"{spec.algorithm} does not run with pp-size > 1; only EAGLE does"
    mode = server.flags.get("disaggregation-mode", "null")
    relayed = str(server.env.get("SGLANG_ENABLE_PP_SPEC", "0")).lower() in YES
    if spec.algorithm == "EAGLE" and relayed:
        if server.attention_dp or server.flags.get("speculative-adaptive") or mode != "null":
            return (
                "SGLANG_ENABLE_PP_SPEC takes no data-parallel attention, no speculative-adaptive "
                "and no disaggregation-mode"
            )
        return None
    if mode == "prefill":
        return None
    relay = "; or set SGLANG_ENABLE_PP_SPEC to 1" if spec.algorithm == "EAGLE" else ""
    return f"{spec.algorithm} with pp-size > 1 runs only on disaggregation-mode prefill{relay}"


@speculation_rules.add("arg_groups/speculative_hook.py:305-310 and :675-676")
def _attention_dp_head(server: Candidate) -> str | None:
    if server.shape is not Shape.BLOCK or not server.attention_dp:
        return None
    if server.flags.get("enable-dp-lm-head"):
        return None
    name = server.speculation.algorithm
    return f"{name} with data-parallel attention runs only with enable-dp-lm-head: true"


@speculation_rules.add("arg_groups/speculative_hook.py:198-230 and :427-434")
def _draft_window(server: Candidate) -> str | None:
    window = server.flags.get("speculative-draft-window-size")
    sink = server.flags.get("speculative-draft-sink-size")
    tokens = server.speculation.num_draft_tokens
    if isinstance(window, int) and window <= 0:
        return f"speculative-draft-window-size {window} is less than 1"
    if isinstance(sink, int) and sink < 0:
        return f"speculative-draft-sink-size {sink} is less than 0"
    if sink is not None and window is None:
        return "speculative-draft-sink-size is taken only beside speculative-draft-window-size"
    if server.speculation.algorithm != "DFLASH" or not isinstance(window, int):
        return None
    if tokens is None or window >= tokens:
        return None
    return f"speculative-draft-window-size {window} is less than DFLASH's block of {tokens}"


@speculation_rules.add("arg_groups/speculative_hook.py:1331-1350")
def _ngram_corpus(server: Candidate) -> str | None:
    if server.shape is not Shape.LOOKUP:
        return None
    if server.flags.get("speculative-ngram-external-corpus-path") is None:
        return None
    budget = server.number("speculative-ngram-external-sam-budget", 0)
    tokens = server.speculation.num_draft_tokens
    if budget < 1:
        return (
            "speculative-ngram-external-corpus-path needs speculative-ngram-external-sam-budget, "
            "at least 1"
        )
    if server.number("speculative-ngram-external-corpus-max-tokens", 1) < 1:
        return "speculative-ngram-external-corpus-max-tokens is less than 1"
    if tokens is None or budget <= tokens - 1:
        return None
    return (
        f"speculative-ngram-external-sam-budget {budget} is more than num_draft_tokens - 1, "
        f"{tokens - 1}"
    )


@speculation_rules.add("arg_groups/attention_hook.py:161-163")
def _flex_attention(server: Candidate) -> str | None:
    if not server.speculation.enabled or "flex_attention" not in server.attention_backends:
        return None
    return "attention backend flex_attention runs only without speculation"


@speculation_rules.add("arg_groups/attention_hook.py:450-458")
def _linear_replay_chain(server: Candidate) -> str | None:
    if not server.is_tree or not server.flags.get("enable-linear-replayssm-spec"):
        return None
    return f"enable-linear-replayssm-spec takes only topk 1, not {server.speculation.topk}"


@speculation_rules.add("the draft is split over ranks of the target's group")
def _draft_tp_divides_tp(server: Candidate) -> str | None:
    tp = server.number("tp-size", 1)
    if server.draft_tp is None or (server.draft_tp >= 1 and tp % server.draft_tp == 0):
        return None
    return f"draft_tp {server.draft_tp} does not divide the target's tp-size {tp}"


_rules_0_5_17 = Rules("SGLang 0.5.17")

_DEEPEST_0_5_17 = 7
"""Of the candidates that it has without a file of its own
(`speculative/adaptive_spec_params.py:22-48`)."""


@_rules_0_5_17.add(
    "model_executor/model_runner.py:763-767, model_executor/graph_shared_output.py:55-59: the "
    "graphs' logits buffer has rows for the steps that it starts with"
)
def _adaptive_starts_deepest(server: Candidate) -> str | None:
    if not server.flags.get("speculative-adaptive") or server.drops_adaptive:
        return None
    if server.flags.get("disable-cuda-graph") or server.flags.get("device") == "cpu":
        return None
    # Candidates in a configuration file are unknown here.
    if "speculative-adaptive-config" in server.flags or not server.is_chain:
        return None
    steps = server.speculation.num_steps
    if steps is None or steps >= _DEEPEST_0_5_17:
        return None
    return (
        f"speculative-adaptive starts in 0.5.17 only at its deepest candidate, num_steps "
        f"{_DEEPEST_0_5_17}, not at {steps}: the graphs of deeper ones find no room for their "
        "logits"
    )


VERSION_RULES = {"0.5.17": _rules_0_5_17.all}
"""By version, what it does not start with although its arguments pass."""
