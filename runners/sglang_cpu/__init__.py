"""Install the real SGLang for a CPU, with tiny models, into a separate folder.

    python -m runners.sglang_cpu [DIR]        (default: .sglang-cpu)

creates `DIR/venv` and `DIR/models`. The interpreter of `DIR/venv` runs `-m sglang.launch_server`
with `SGLANG_USE_CPU_ENGINE=1`. Each step writes a stamp with the digest of its inputs, so that
another call repeats only changed steps.

No file in site-packages is edited. SGLang's CPU kernels are not in the package registry, so
`stand_in/` has replacements in plain torch, correct but slow. They are copied to `DIR/stand-in`,
and a `.pth` file adds them to the path.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_DIR = Path(".sglang-cpu")
_HERE = Path(__file__).parent
_STAND_IN = _HERE / "stand_in"
_MAKE_MODELS = _HERE / "make_models.py"
_REQUIREMENTS = tuple(
    _HERE / name for name in ("requirements.txt", "requirements-nodeps.txt", "constraints.txt")
)


@dataclass(frozen=True, slots=True)
class CpuServer:
    """An installed SGLang for a CPU.

    Attributes:
        root: Folder of the installation.
    """

    root: Path

    @property
    def python(self) -> Path:
        """Interpreter that runs `-m sglang.launch_server`."""
        return self.root / "venv" / "bin" / "python"

    @property
    def models(self) -> Path:
        """Folder with `tiny`, `noisy`, `draft` and `eagle3`."""
        return self.root / "models"


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    stamp: Path
    digest: str
    act: Callable[[], None]

    @property
    def done(self) -> bool:
        return self.stamp.exists() and self.stamp.read_text() == self.digest


def install(root: Path, say: Callable[[str], None] = lambda _: None) -> CpuServer:
    """Run the missing or changed steps under `root`.

    Raises:
        subprocess.CalledProcessError: A step failed; its output is on stderr. The next call
            repeats that step.
    """
    server = CpuServer(root.resolve())
    server.root.mkdir(parents=True, exist_ok=True)
    for step in _steps(server):
        if step.done:
            continue
        say(f"{step.name} ...")
        begun = time.monotonic()
        step.stamp.unlink(missing_ok=True)
        step.act()
        step.stamp.write_text(step.digest)
        say(f"{step.name}: {time.monotonic() - begun:.0f} s")
    return server


def _steps(server: CpuServer) -> tuple[_Step, ...]:
    root = server.root
    packages = _digest(_REQUIREMENTS, f"{sys.version_info.major}.{sys.version_info.minor}")
    # The .pth file is in the venv, and the models need its torch, so both depend on the packages.
    stand_in = _digest(sorted(_STAND_IN.rglob("*.py")), packages, str(root))
    models = _digest([_MAKE_MODELS], packages)
    return (
        _Step("installing SGLang", root / "venv.stamp", packages, lambda: _make_venv(server)),
        _Step("kernel stand-in", root / "stand-in.stamp", stand_in, lambda: _stand_in(server)),
        _Step("tiny models", root / "models.stamp", models, lambda: _make_models(server)),
    )


def _digest(files: Iterable[Path], *more: str) -> str:
    digest = hashlib.sha256()
    for part in more:
        digest.update(part.encode())
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _make_venv(server: CpuServer) -> None:
    requirements, nodeps, constraints = map(str, _REQUIREMENTS)
    _call(sys.executable, "-m", "venv", "--clear", str(server.root / "venv"))
    pip = (str(server.python), "-m", "pip", "install", "--quiet", "--constraint", constraints)
    _call(*pip, "--requirement", requirements)
    _call(*pip, "--no-deps", "--requirement", nodeps)


def _stand_in(server: CpuServer) -> None:
    folder = server.root / "stand-in"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_STAND_IN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = _call(str(server.python), "-c", asked).strip()
    # "zz" sorts after other .pth files; the second line runs the import hook.
    pth = Path(site) / "zz_sglang_cpu_stand_in.pth"
    pth.write_text(f"{folder}\nimport sglang_cpu_stand_in\n")


def _make_models(server: CpuServer) -> None:
    shutil.rmtree(server.models, ignore_errors=True)
    _call(str(server.python), str(_MAKE_MODELS), str(server.models))


def _call(*argv: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return done.stdout
