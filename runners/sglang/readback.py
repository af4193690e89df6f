"""Read the configuration and the environment of a running server back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psutil

from results.records import Resolved
from runners.plugin.protocol import STATUS
from runners.server_info import simulated_of, speculation_of
from runners.sglang.command import flag_destination
from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.configuration import Configuration
from search_spaces.flags.flags import canonical_flag
from search_spaces.rules.legality import canonical_speculation
from search_spaces.secrets import is_secret, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from search_spaces.configuration import Speculation, Value
    from search_spaces.study_file.study import Study


_ABSENT = object()


def resolved_of(
    asked: Configuration, study: Study, info: Mapping[str, Any], environ: Mapping[str, str]
) -> Resolved:
    """Read a configuration back.

    Flags come from `/server_info`, variables from the environment of the process. A flag that the
    server does not report is left out. A flag that was not given has the server's default. With
    `speculative-adaptive`, the steps are those at the start.

    Flags and variables that the study does not vary come from the production command. They keep the
    requested value, since SGLang treats them the same way in production (a context length of
    `128k`).

    Args:
        asked: Requested configuration.
        study: Study of the configuration.
        info: Body of `/server_info`.
        environ: Environment of the server process; empty if the process is not visible.
    """
    speculation = _canonical(_at_start(speculation_of(info), info), study)
    has_draft = (
        speculation.enabled and ALGORITHMS.get(speculation.algorithm, ALGORITHMS["EAGLE"]).has_draft
    )
    flags: dict[str, Value] = {}
    for name, value in asked.flags:
        found = _found(name, asked, study, info)
        if found is not _ABSENT:
            todays = study.production is not None and name not in study.space.tuned_flags
            flags[name] = value if todays else _as_asked(value, found)
    env: dict[str, Value] = {}
    for name, value in asked.env if environ else ():
        todays = study.production is not None and name not in study.space.env
        env[name] = value if todays else environ.get(name)
    simulated, time_scale = simulated_of(info)
    return Resolved(
        configuration=Configuration.of(
            speculation,
            # Stock SGLang gives the draft the target's groups (0.5.9 to 0.5.23).
            draft_tp=info.get("tp_size", asked.draft_tp) if has_draft else None,
            flags=flags,
            env=env,
        ),
        sglang_version=str(info.get("version") or "unknown"),
        simulated=simulated,
        time_scale=time_scale,
        server_info=_without_clock(info),
    )


def _without_clock(info: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the counts of the plugin's clock: they are large and belong to no window.

    The state of the clock stays.
    """
    kept = dict(info)
    states = info.get("internal_states")
    if isinstance(states, list):
        kept["internal_states"] = [
            {**state, STATUS: {**state[STATUS], "clock": {**state[STATUS]["clock"], "batches": {}}}}
            if isinstance(state, dict)
            and isinstance(state.get(STATUS), dict)
            and isinstance(state[STATUS].get("clock"), dict)
            else state
            for state in states
        ]
    return kept


def _found(name: str, asked: Configuration, study: Study, info: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Reported value of a flag; `_ABSENT` if the server does not report it.

    In 0.5.23, `dp_size` counts replicas. With `--enable-dp-attention`, SGLang moves the value of
    `--dp-size` to `attn_dp_size` (`parallel_hook.py`; `deepseek_v4_hook.py` without the flag).
    """
    found = info.get(flag_destination(name), _ABSENT)
    if canonical_flag(name) == "dp-size" and found == 1:
        groups = {**study.server.flags, **dict(asked.flags)}.get("attn-dp-size")
        if groups in {None, 1}:
            return info.get("attn_dp_size", found)
    return found


def _at_start(speculation: Speculation, info: Mapping[str, Any]) -> Speculation:
    """Replace the current steps of adaptive speculation by those at the start.

    The scheduler (`internal_states`) reports the current steps, the HTTP process those at the start
    (0.5.23: `eagle_worker_v2.py:1898-1903`, `http_server.py:864-892`).
    """
    if not speculation.enabled or not info.get("speculative_adaptive"):
        return speculation
    return replace(
        speculation,
        num_steps=info.get("speculative_num_steps", speculation.num_steps),
        num_draft_tokens=info.get("speculative_num_draft_tokens", speculation.num_draft_tokens),
    )


def _canonical(speculation: Speculation, study: Study) -> Speculation:
    """Remove the derived steps and topk that NGRAM and the block algorithms report."""
    algorithm = ALGORITHMS.get(speculation.algorithm)
    if algorithm is not None and algorithm.shape in {Shape.LOOKUP, Shape.BLOCK}:
        return canonical_speculation(speculation, study)
    return speculation


def _as_asked(asked: Value, found: Any) -> Value:  # noqa: ANN401 - JSON
    """The requested value if the reported value means the same, else the reported value."""
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if asked is not None and not isinstance(asked, bool) and _means(str(asked), found):
        return asked
    if isinstance(found, (list, dict)):
        return json.dumps(found, separators=(",", ":"))
    if found is False:
        return None  # a switch that is off equals one that is not given
    value: Value = found
    return value


def _means(word: str, found: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a word of the command line has this value, also as JSON (`1e-5`, `{"a": 1}`)."""
    if str(found) == word:
        return True
    try:
        parsed = json.loads(word)
    except ValueError:
        return False
    return type(parsed) is type(found) and bool(parsed == found)


_BEARING: Final = re.compile(
    r"(CUDA|DG|FLASHINFER|GLOO|HF|LD|NCCL|NVSHMEM|OMP|PYTORCH|SGLANG|SGL|TILELANG|TRANSFORMERS"
    r"|TRITON|TRTLLM|TVM_FFI)_|TORCH|NVIDIA_(TF32_OVERRIDE|VISIBLE_DEVICES)$"
)
"""Variables that affect serving. Other `NVIDIA_` variables describe the image, and
`NVIDIA_REQUIRE_CUDA` has 3 kB."""

_OF_ONE_LAUNCH: Final = frozenset({"SGLANG_RUN_ID"})
"""Differs in every launch and has no effect (0.5.23)."""

_SCHEDULER: Final = "sglang::scheduler"
"""Process name of SGLang's schedulers (0.5.9 to 0.5.23)."""


def is_recorded(name: str) -> bool:
    """Whether a variable affects serving and may be stored."""
    return bool(_BEARING.match(name)) and name not in _OF_ONE_LAUNCH and not is_secret(name)


def effective_environment(processes: Iterable[psutil.Process]) -> dict[str, str]:
    """Variables that the scheduler of a launch was started with.

    SGLang sets `NCCL_CUMEM_ENABLE`, `NCCL_NVLS_ENABLE`, `CUDA_DEVICE_MAX_CONNECTIONS` and others
    before it starts its schedulers, so that only a scheduler shows them (engine.py, 0.5.23).
    Variables that a scheduler sets later are not visible. Without a known scheduler, the process
    with the most recorded variables is read.

    Returns:
        Variables for which `is_recorded` holds; empty if no process can be read.
    """
    best: tuple[bool, int, int] | None = None
    found: dict[str, str] = {}
    for process in processes:
        try:
            whole, words = process.environ(), process.cmdline()
        except (psutil.Error, OSError):
            continue
        if not whole:
            continue  # setproctitle overwrote it with the process's name (SPT_NOENV prevents this)
        environ = {
            name: redact_text(value) for name, value in sorted(whole.items()) if is_recorded(name)
        }
        rank = (any(_SCHEDULER in word for word in words), len(environ), -process.pid)
        if best is None or rank > best:
            best, found = rank, environ
    return found
