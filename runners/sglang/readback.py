"""What a running server says it runs, in the shape of what was asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from results.records import Resolved
from runners.plugin.protocol import STATUS
from runners.server_info import simulated_of, speculation_of
from runners.sglang.command import flag_destination
from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.configuration import Configuration
from search_spaces.flags.flags import canonical_flag
from search_spaces.rules.legality import canonical_speculation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.configuration import Speculation, Value
    from search_spaces.study_file.study import Study

_ABSENT = object()


def resolved_of(
    asked: Configuration, study: Study, info: Mapping[str, Any], environ: Mapping[str, str]
) -> Resolved:
    """Reads a configuration back.

    Flags come from `/server_info`, variables from the process's environment. A flag that the
    server does not show cannot be read back and is left out. A flag that was not given shows the
    value that the server chose by itself. Where the server changes its draft steps as it runs
    (`speculative-adaptive`), the steps are those that it began with.

    Flags and variables that the study does not vary are those of today's command. They stay as
    asked: whatever SGLang makes of them (a context length of `128k`), it makes of them today.

    Args:
        asked: What was asked for.
        study: The study that it belongs to.
        info: The `/server_info` body.
        environ: The server process's environment; empty where it can't be seen, then no variable
            is read back.
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
    """The body without what the plugin's clock has counted so far: of no window, and large.

    That there is a clock, and whether it failed, stays.
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
    """What the server shows of a flag, in the flag's own words; `_ABSENT` if nothing.

    0.5.23 counts replicas with `dp_size`, and moves the groups that `--dp-size` asks for beside
    `--enable-dp-attention` to `attn_dp_size` (`parallel_hook.py`; `deepseek_v4_hook.py` does it
    without the flag).
    """
    found = info.get(flag_destination(name), _ABSENT)
    if canonical_flag(name) == "dp-size" and found == 1:
        groups = {**study.server.flags, **dict(asked.flags)}.get("attn-dp-size")
        if groups in {None, 1}:
            return info.get("attn_dp_size", found)
    return found


def _at_start(speculation: Speculation, info: Mapping[str, Any]) -> Speculation:
    """The steps that adaptive speculation began with: those of now are a moment's.

    The scheduler (`internal_states`) tells the steps of now, the HTTP process those that it was
    started with (0.5.23: `eagle_worker_v2.py:1898-1903`, `http_server.py:864-892`).
    """
    if not speculation.enabled or not info.get("speculative_adaptive"):
        return speculation
    return replace(
        speculation,
        num_steps=info.get("speculative_num_steps", speculation.num_steps),
        num_draft_tokens=info.get("speculative_num_draft_tokens", speculation.num_draft_tokens),
    )


def _canonical(speculation: Speculation, study: Study) -> Speculation:
    """NGRAM and the block algorithms show steps and topk that follow from the rest."""
    algorithm = ALGORITHMS.get(speculation.algorithm)
    if algorithm is not None and algorithm.shape in {Shape.LOOKUP, Shape.BLOCK}:
        return canonical_speculation(speculation, study)
    return speculation


def _as_asked(asked: Value, found: Any) -> Value:  # noqa: ANN401 - JSON
    """`found`, in the type that was asked for where both mean the same."""
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if asked is not None and not isinstance(asked, bool) and _means(str(asked), found):
        return asked
    if isinstance(found, (list, dict)):
        return json.dumps(found, separators=(",", ":"))
    if found is False:
        return None  # a switch that is off is one that is not given
    value: Value = found
    return value


def _means(word: str, found: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a word of the command line gives this value; `1e-5` and `{"a": 1}` have others."""
    if str(found) == word:
        return True
    try:
        parsed = json.loads(word)
    except ValueError:
        return False
    return type(parsed) is type(found) and bool(parsed == found)
