"""GPUs that can be pretended to SGLang where there is none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from search_spaces.gpus import gpus_of_server

if TYPE_CHECKING:
    from collections.abc import Iterable

    from search_spaces.study_file.study import Study


@dataclass(frozen=True, slots=True)
class PretendedGpu:
    """What SGLang's handling of arguments asks a machine about its GPU.

    Attributes:
        name: NVIDIA's.
        capability: Compute capability.
        memory_mib: As `nvidia-smi` shows it.
    """

    name: str
    capability: tuple[int, int]
    memory_mib: int

    def to_dict(self) -> dict[str, Any]:
        """As the process that asks SGLang reads it."""
        return asdict(self)


GPUS = (
    PretendedGpu("NVIDIA H100", (9, 0), 81_559),
    PretendedGpu("NVIDIA H200", (9, 0), 143_771),
    PretendedGpu("NVIDIA B200", (10, 0), 183_359),
    PretendedGpu("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 97_887),
    PretendedGpu("NVIDIA L40S", (8, 9), 46_068),
    PretendedGpu("NVIDIA A100", (8, 0), 81_920),
)
"""Known ones; the first is assumed where nothing says which."""


def gpu_named(name: str) -> PretendedGpu | None:
    """The known GPU that a name is one of (`"h200"`, `"NVIDIA H100 80GB HBM3"`)."""
    wanted = _letters(name)
    if not wanted:
        return None
    for gpu in GPUS:
        known = _letters(gpu.name)
        if known in wanted or wanted in known:
            return gpu
    return None


def gpu_to_pretend(
    study: Study, *, gpus_here: int, named: Iterable[str] = ()
) -> PretendedGpu | None:
    """The GPU that SGLang is told of; `None` where it sees its own machine as it is.

    Args:
        study: A server on another device than CUDA has no use for one.
        gpus_here: GPUs that the server environment has.
        named: Names of those that are meant, the likeliest first.
    """
    if gpus_here or not gpus_of_server(study.server.flags):
        return None
    found = (gpu_named(name) for name in named)
    return next((gpu for gpu in found if gpu is not None), GPUS[0])


def _letters(name: str) -> str:
    words = name.lower().replace("nvidia", "").replace("-", " ").split()
    return "".join(words)
