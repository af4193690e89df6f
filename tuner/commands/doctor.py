"""`tuner doctor`: check this machine and say how to fix what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version

from results.database import shown_address
from results.errors import StoreError, StoreMissing, StoreOutdated
from results.store import Store
from runners.base import EnvironmentUnusableError
from runners.process.environment import PYTHON_VARIABLE, LocalEnvironment
from runners.sglang.preflight.ask import NotAskedError, ask
from tuner.errors import Exit, copyable
from tuner.reports.json_text import dump


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the machine.

    Attributes:
        name: The part that is checked.
        ok: Whether sweeps on real servers can rely on this part.
        found: The finding, or the remedy.
    """

    name: str
    ok: bool
    found: str


def doctor(*, storage: str, as_json: bool) -> Exit:
    """Print all checks. The exit code is 0 even if a check fails."""
    sglang = _sglang()
    asked = (_arguments(),) if sglang.ok else ()
    checks = (_python(), sglang, *asked, _gpus(), _storage(storage))
    if as_json:
        sys.stdout.write(
            dump({"ok": all(c.ok for c in checks), "checks": [asdict(c) for c in checks]})
        )
        return Exit.DONE
    for check in checks:
        line = f"{'ok     ' if check.ok else 'missing'}  {check.name}: {check.found}\n"
        sys.stdout.write(copyable(line))
    if not all(check.ok for check in checks[:-1]):
        sys.stdout.write(
            "Real servers cannot start on this machine yet; `--runner simulated` works anywhere.\n"
        )
    return Exit.DONE


def _python() -> Check:
    own = version("sglang-tuner")
    return Check("python", ok=True, found=f"{platform.python_version()}, sglang-tuner {own}")


def _sglang() -> Check:
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    try:
        found = LocalEnvironment(python).facts().sglang_version
    except EnvironmentUnusableError as error:
        return Check("sglang", ok=False, found=str(error))
    if found is None:
        return Check(
            "sglang",
            ok=False,
            found=f"not installed for {python}; name the interpreter that has it in "
            f"{PYTHON_VARIABLE}, or as `server.python` in the study",
        )
    return Check("sglang", ok=True, found=f"{found}, with {python}")


def _arguments() -> Check:
    """Whether SGLang can check a configuration, as `tuner validate` requests."""
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    try:
        answers = ask(LocalEnvironment(python), (), seconds=0)
    except NotAskedError as error:
        return Check("sglang's arguments", ok=False, found=str(error))
    return Check(
        "sglang's arguments",
        ok=True,
        found=f"SGLang checks configurations without a launch (imported in "
        f"{answers.import_s:.0f} s)",
    )


def _gpus() -> Check:
    command = shutil.which("nvidia-smi")
    if command is None:
        return Check(
            "gpus", ok=False, found="nvidia-smi not found; is the NVIDIA driver installed?"
        )
    try:
        listed = subprocess.run(
            [command, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return Check("gpus", ok=False, found=f"nvidia-smi does not answer: {error}")
    gpus = listed.splitlines()
    return Check("gpus", ok=bool(gpus), found=f"{len(gpus)}: {'; '.join(gpus) or 'none found'}")


def _storage(storage: str) -> Check:
    try:
        with Store.open(storage, read_only=True) as store:
            count = len(store.studies())
            shown = store.shown
    except StoreMissing:
        shown = shown_address(storage)
        return Check("storage", ok=True, found=f"{shown}: created by the first sweep")
    except StoreOutdated as error:
        return Check("storage", ok=True, found=str(error))
    except StoreError as error:
        return Check("storage", ok=False, found=str(error))
    found = f"{shown}: {count} studies; check them with `tuner db check`"
    return Check("storage", ok=True, found=found)
