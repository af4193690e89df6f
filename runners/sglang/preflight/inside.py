"""Check launches inside SGLang's environment: launches on stdin, SGLang's answers on stdout.

Nothing is launched. Arguments are parsed, resolved and checked, as at the start of a launch. The
script runs as `python -c` where the tuner is not installed, so it imports only SGLang and the
standard library. Entry points of SGLang 0.5.9, 0.5.17 and 0.5.23:

- `prepare_server_args` parses (`server_args.py:668`, 0.5.23). Before 0.5.23 it also resolves
  (`ServerArgs.__post_init__`).
- `resolve_once` resolves (0.5.23), and `resolving_view` reads the result.
- `check_server_args` checks, as the launcher does before it starts a process.

stdin: `{"gpu": {...} or null, "import_s": 180, "seconds": 30, "launches": [{"argv": [], "env":
{}}]}`. A variable with `null` is removed. stdout: one line of JSON for the import, then one per
launch in order, until the time limit. The `values` of an answer are those that differ from the
first known value of the field. The `asked` are the fields that the launch sets.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VOLATILE = {"random_seed", "nccl_port", "port", "host"}
"""Fields that differ from start to start."""

NO_ANSWER = (OSError, ImportError, MemoryError)
"""Errors of the machine, the network or the installation, not of the arguments."""

CHECKS = (ValueError, AssertionError, TypeError, NotImplementedError, ZeroDivisionError)
"""Errors of SGLang's argument checks. With a simulated GPU, other errors may come from the
simulation."""

BEFORE_0_5_23 = {
    "is_cuda": "is_cuda",
    "has_flashinfer": "is_flashinfer_available",
    "is_hopper_with_cuda_12_3": "is_hopper_with_cuda_12_3",
    "device_sm": "get_device_sm",
    "device_capability": "get_device_capability",
}
"""Functions of `sglang.srt.utils.common` by the facts that replace them in 0.5.23. The functions of
other facts have the fact's name with `_supported`."""

SLACK_S = 10
"""Time for one answer beyond the time limit of all."""

ARGUMENTS = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.configs.model_config")
"""Modules that handle arguments. Kernels must not see the simulated GPU."""


class RefusedError(Exception):
    """The parser refused the arguments; replaces its exit."""


class Parsed:
    """Result of the parser for the last command line."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        original: Callable[..., object] = argparse.ArgumentParser.parse_args

        def parse_args(
            parser: argparse.ArgumentParser, args: object = None, namespace: object = None
        ) -> object:
            found = original(parser, args, namespace)
            self._options = parser._option_string_actions  # noqa: SLF001 - no public way
            self.namespace = dict(vars(found))
            return found

        def error(_: argparse.ArgumentParser, message: str) -> NoReturn:
            raise RefusedError(message)

        setattr(argparse.ArgumentParser, "parse_args", parse_args)  # noqa: B010 - it has a type
        setattr(argparse.ArgumentParser, "error", error)  # noqa: B010

    def given(self, argv: list[str]) -> Iterator[str]:
        """Fields of the flags in a command line."""
        for word in argv:
            option = self._options.get(word.split("=", 1)[0])
            if option is not None and option.dest not in VOLATILE:
                yield option.dest


def pretend(gpu: dict[str, Any]) -> None:
    """Simulate a GPU wherever the argument handling reads one."""
    torch = importlib.import_module("torch")
    with contextlib.suppress(ImportError):
        # Kernels check for a GPU during their import, so import them before the simulation.
        importlib.import_module("sglang.srt.layers.quantization")
    capability = tuple(gpu["capability"])
    torch.cuda.get_device_capability = always(capability)
    torch.version.cuda = torch.version.cuda or "12.9"
    facts = facts_of(capability)
    functions = {"get_device_memory_capacity": gpu["memory_mib"]}
    override = override_platform()
    if override is None:
        functions |= {BEFORE_0_5_23.get(n, f"{n}_supported"): v for n, v in facts.items()}
        functions["get_device"] = "cuda"
    else:
        for name, value in facts.items():
            with contextlib.suppress(ValueError):  # a fact that this version does not know
                override(**{name: value}).install()
    for name, module in list(sys.modules.items()):
        if name.startswith(ARGUMENTS) or name == "sglang.srt.utils.common":
            for function, value in functions.items():
                if callable(getattr(module, function, None)):
                    setattr(module, function, always(value))


def override_platform() -> Callable[..., Any] | None:
    """SGLang's own function that sets facts about the machine (since 0.5.23)."""
    with contextlib.suppress(ImportError):
        context = importlib.import_module("sglang.srt.runtime_context")
        found: Callable[..., Any] | None = getattr(context, "override_platform", None)
        return found
    return None


def facts_of(capability: tuple[int, ...]) -> dict[str, Any]:
    """Facts about a GPU that SGLang reads, by compute capability."""
    major, minor = capability
    return {
        "is_cuda": True,
        "has_flashinfer": True,
        "is_sm90": major == 9,
        "is_hopper_with_cuda_12_3": major == 9,
        "is_sm100": major == 10,
        "is_sm100_or_sm110": major in {10, 11},
        "is_sm110": major == 11,
        "is_sm120": major == 12,
        "is_blackwell": major in {10, 11, 12},
        "device_sm": 10 * major + minor,
        "device_capability": capability,
    }


def always(value: object) -> Callable[..., Any]:
    """Function that returns `value` for all arguments."""
    return lambda *_, **__: value


def resolved(argv: list[str]) -> object:
    """Arguments as SGLang would run them. Errors are SGLang's."""
    prepare = importlib.import_module("sglang.srt.server_args").prepare_server_args
    args: Any = prepare(argv)
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    args.check_server_args()
    with contextlib.suppress(ImportError, AttributeError):
        view = importlib.import_module("sglang.srt.arg_groups.overrides").resolving_view
        found: object = view(args)
        return found
    result: object = args
    return result


def one_line(error: BaseException) -> str:
    """Text of an error on one line, without control characters of terminals."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())


def described(error: BaseException) -> str:
    """Type and text of an error on one line, or its place if it has no text."""
    text = one_line(error)
    if not text:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{Path(last.filename).name}, line {last.lineno}: {last.line}"
    return f"{type(error).__name__}: {text}"


def of_torch(error: BaseException) -> bool:
    """Whether PyTorch raised the error, because it looked for the simulated GPU."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.sep}torch{os.sep}" in last.filename


def answer(
    argv: list[str], parsed: Parsed, base: dict[str, Any], *, pretended: bool
) -> dict[str, Any]:
    """SGLang's answer to one command line; adds the first value of each field to `base`."""
    try:
        view = resolved(argv)
    except RefusedError as error:
        return {"refused": one_line(error)}
    except SystemExit as error:
        return {"refused": f"SGLang ends with exit code {error.code}"}
    except NO_ANSWER as error:
        return {"unanswered": described(error)}
    except Exception as error:  # noqa: BLE001 - every error is an answer
        simulation = pretended and (of_torch(error) or not isinstance(error, CHECKS))
        return {"unanswered" if simulation else "refused": described(error)}
    values = {}
    for name in parsed.namespace.keys() - VOLATILE:
        value = plain(getattr(view, name, None))
        if name not in base or base[name] != value:
            values[name] = value
            base.setdefault(name, value)
    asked = {name: plain(parsed.namespace.get(name)) for name in parsed.given(argv)}
    return {"values": values, "asked": asked}


def plain(value: object) -> object:
    """Value that JSON can hold."""
    return json.loads(json.dumps(value, default=str, skipkeys=True))


def main() -> None:
    """Read the launches and write the answers."""
    # SGLang and its libraries print to stdout, so redirect their output to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)

    def write(line: dict[str, Any]) -> None:
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
        out.flush()

    request = json.load(sys.stdin)
    # SIGALRM ends the process in any hang, also if nobody waits for it any more.
    signal.alarm(math.ceil(request["import_s"]))
    began = time.monotonic()
    parsed = Parsed()
    try:
        sglang = importlib.import_module("sglang")
        importlib.import_module("sglang.srt.server_args")
        if request["gpu"]:
            pretend(request["gpu"])
        with contextlib.suppress(ModuleNotFoundError):  # not in 0.5.9
            # As in `sglang.launch_server`: plugins may change the argument handling.
            importlib.import_module("sglang.srt.plugins").load_plugins()
    except Exception as error:  # noqa: BLE001 - any error means that SGLang cannot be asked
        write({"failed": described(error)})
        return
    write({"sglang": sglang.__version__, "import_s": time.monotonic() - began})
    base: dict[str, Any] = {}
    extra = ["--device", "cuda"] if request["gpu"] else []
    environ = dict(os.environ)
    for number, launch in enumerate(request["launches"]):
        if number <= 1:
            began = time.monotonic()  # the first launch imports modules for all others
        if time.monotonic() - began > request["seconds"]:
            break
        for name, value in launch["env"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        write(answer([*launch["argv"], *extra], parsed, base, pretended=bool(request["gpu"])))
        if number == 0:
            signal.alarm(math.ceil(request["seconds"]) + SLACK_S)
        os.environ.clear()
        os.environ.update(environ)


if __name__ == "__main__":
    main()
