"""Machine and software of a server, which affect results like its command."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine of the servers. `None` or an empty tuple means unknown or absent.

    Attributes:
        host: Name of the machine.
        sglang: Version of SGLang.
        torch: Version of PyTorch with its build (`"2.9.1+cu128"`).
        nccl: Version of PyTorch's NCCL.
        python: Version of the server's interpreter.
        driver: Version of the GPU driver.
        gpus: Names of the visible GPUs, in the driver's order.
        topology: Output of `nvidia-smi topo -m`.
        kernel: Version of the operating system's kernel.
        cpu: Name and number of the processors.
        caches: Folders of caches of compiled kernels by package. Kernels found there are not
            compiled again.
    """

    host: str | None = None
    sglang: str | None = None
    torch: str | None = None
    nccl: str | None = None
    python: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    topology: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    caches: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON for a database column."""
        return asdict(self) | {"gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; ignores keys of newer versions."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        gpus, caches = tuple(data.get("gpus") or ()), dict(data.get("caches") or {})
        return cls(**known | {"gpus": gpus, "caches": caches})
