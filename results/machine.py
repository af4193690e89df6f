"""The machine and software that a server runs on: what a figure depends on beside its command."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Machine:
    """Where servers run. `None`, or an empty tuple: not known, or there is none.

    Attributes:
        host: Name of the machine.
        sglang: Version of SGLang.
        torch: Version of PyTorch, its build included (`"2.9.1+cu128"`).
        nccl: Version of NCCL that PyTorch brings.
        python: Version of the server's interpreter.
        driver: Version of the GPU driver.
        gpus: Names of the GPUs that can be seen, in the driver's order.
        topology: What `nvidia-smi topo -m` prints.
        kernel: Version of the operating system's kernel.
        cpu: Name and count of the processors.
        caches: Folder of each cache of compiled kernels, by the package that fills it: what a
            launch finds there need not be compiled.
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
        """As JSON, for a database column."""
        return asdict(self) | {"gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; keys of newer versions are not read."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        gpus, caches = tuple(data.get("gpus") or ()), dict(data.get("caches") or {})
        return cls(**known | {"gpus": gpus, "caches": caches})
