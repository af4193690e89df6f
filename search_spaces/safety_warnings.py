"""What must be known before a configuration serves: settings that can cost right answers, or hang.

The one home of these sentences: they go with a configuration wherever it is shown or exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl.lists import BadListError, read
from search_spaces.simulated_acceptance import CAUTION, simulates_acceptance

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
_ACROSS_CPUS = {"SYS", "5"}


def cautions(configuration: Configuration, study: Study) -> tuple[str, ...]:
    """Sentences on a configuration as a study launches it, fixed flags and variables included.

    Sources: NCCL's documentation of `NCCL_PROTO` (naming LL128 forces it on; where the hardware
    does not keep 128-byte stores whole, data can be corrupted) and `src/graph/tuning.cc` (2.30: by
    itself only over NVLink); public reports of hangs with `NCCL_P2P_LEVEL=SYS` on PCIe hosts;
    SGLang 0.5.23's help on the accept thresholds.
    """
    env = {**study.server.env, **dict(configuration.env)}
    flags = {**study.server.flags, **dict(configuration.flags)}
    found = [CAUTION] if simulates_acceptance(study) else []
    protocols = env.get("NCCL_PROTO")
    if protocols is not None and _forces_ll128(str(protocols)):
        found.append(
            f"NCCL_PROTO={protocols} forces LL128 on. Over PCIe NCCL leaves it off by itself, and "
            "NVIDIA warns of corrupted data where the hardware is not made for it: there, compare "
            "the answers with those of a server without it before this one serves"
        )
    level = env.get("NCCL_P2P_LEVEL")
    if level is not None and str(level) in _ACROSS_CPUS:
        found.append(
            f"NCCL_P2P_LEVEL={level} lets GPUs copy to each other across CPUs, which hangs on some "
            "hosts: let it run under load on the host that is to serve, before it serves"
        )
    lowered = [f"--{n} {flags[n]}" for n in _THRESHOLDS if _is_below_one(flags.get(n))]
    if lowered and configuration.speculation.enabled:
        found.append(
            f"{' and '.join(lowered)}: below 1 drafts are accepted that the model would not have "
            "drawn, so that its answers change: compare their quality before it serves"
        )
    return tuple(found)


def _forces_ll128(value: str) -> bool:
    """Whether a value of `NCCL_PROTO` names LL128 for any collective."""
    try:
        enabled = read("NCCL_PROTO", value)
    except BadListError:
        return False
    return any("LL128" in names for _, names in enabled.by_collective)


def _is_below_one(value: object) -> bool:
    try:
        return value is not None and float(str(value)) < 1
    except ValueError:
        return False
