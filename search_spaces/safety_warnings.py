"""Warnings about settings that can corrupt answers or hang hosts.

Every report and export of a configuration shows these warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl.values import BadListError, read_list
from search_spaces.simulated_acceptance import SERVING_WARNING, simulates_acceptance

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
_ACROSS_CPUS = {"SYS", "5"}


def safety_warnings(configuration: Configuration, study: Study) -> tuple[str, ...]:
    """Warnings about a configuration, with the study's fixed flags and variables.

    Sources: NCCL's documentation of `NCCL_PROTO` (naming LL128 forces it on; data can
    be corrupted where 128-byte stores are not atomic) and `src/graph/tuning.cc` (2.30: by default
    only over NVLink); public reports of hangs with `NCCL_P2P_LEVEL=SYS` on PCIe hosts;
    SGLang 0.5.23's help on the accept thresholds.
    """
    env = {**study.server.env, **dict(configuration.env)}
    flags = {**study.server.flags, **dict(configuration.flags)}
    found = [SERVING_WARNING] if simulates_acceptance(study) else []
    protocols = env.get("NCCL_PROTO")
    if protocols is not None and _forces_ll128(str(protocols)):
        found.append(
            f"NCCL_PROTO={protocols} forces LL128 on. NCCL does not use LL128 over PCIe by "
            "default, and NVIDIA warns of corrupted data on unsupported hardware. Before "
            "serving, compare the answers with those of a server without LL128"
        )
    level = env.get("NCCL_P2P_LEVEL")
    if level is not None and str(level) in _ACROSS_CPUS:
        found.append(
            f"NCCL_P2P_LEVEL={level} allows GPU copies across CPUs, which hangs some hosts. Before "
            "serving, run it under load on the production host"
        )
    lowered = [f"--{n} {flags[n]}" for n in _THRESHOLDS if _is_below_one(flags.get(n))]
    if lowered and configuration.speculation.enabled:
        found.append(
            f"{' and '.join(lowered)}: below 1, SGLang accepts drafts that the model would not "
            "sample, so answers change. Before serving, compare the quality of the answers"
        )
    return tuple(found)


def _forces_ll128(value: str) -> bool:
    """Return whether a value of `NCCL_PROTO` names LL128 for any collective."""
    try:
        enabled = read_list("NCCL_PROTO", value)
    except BadListError:
        return False
    return any("LL128" in names for _, names in enabled.by_collective)


def _is_below_one(value: object) -> bool:
    try:
        return value is not None and float(str(value)) < 1
    except ValueError:
        return False
