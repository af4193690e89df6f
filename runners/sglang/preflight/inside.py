"""Runs inside SGLang's environment: launches from stdin, what SGLang makes of them to stdout.

Nothing is launched: arguments are parsed, resolved and checked, as a launch begins. It imports
SGLang and the standard library only, and runs as a script (`python -c`), also where the tuner is
not installed. Entry points of SGLang 0.5.9, 0.5.17 and 0.5.23:

- `prepare_server_args` parses (`server_args.py:668`, 0.5.23); before 0.5.23 it resolves, too
  (`ServerArgs.__post_init__`).
- `resolve_once` resolves (0.5.23), and `resolving_view` reads what came of it.
- `check_server_args` checks, as the launcher does before it starts a process.

stdin: `{"gpu": {...} or null, "import_s": 180, "seconds": 30, "launches": [{"argv": [], "env":
{}}]}`; a variable that is `null` is removed. stdout, a line of JSON each: what was imported, then
the answers in the order of the launches, until the time is up. An answer's `values` are those that
differ from the first that was said of their field; its `asked` are the fields that the launch
gives.
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
"""Of the machine, the network or the installation: no word on the arguments."""

CHECKS = (ValueError, AssertionError, TypeError, NotImplementedError, ZeroDivisionError)
"""What the checks of arguments raise. With a GPU that is only pretended, all else may come of
that."""

BEFORE_0_5_23 = {
    "is_cuda": "is_cuda",
    "has_flashinfer": "is_flashinfer_available",
    "is_hopper_with_cuda_12_3": "is_hopper_with_cuda_12_3",
    "device_sm": "get_device_sm",
    "device_capability": "get_device_capability",
}
"""Functions of `sglang.srt.utils.common` by the facts that 0.5.23 has in their place; of other
facts it is the name with `_supported`."""

SLACK_S = 10
"""What one answer may take beyond the time for all."""

ARGUMENTS = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.configs.model_config")
"""Modules that handle arguments. Kernels that believed in the GPU would look for it."""


class RefusedError(Exception):
    """The parser's words, in place of its end of the process."""


class Parsed:
    """What the parser made of the last command line."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        original: Callable[..., object] = argparse.ArgumentParser.parse_args

        def parse_args(
            parser: argparse.ArgumentParser, args: object = None, namespace: object = None
        ) -> object:
            found = original(parser, args, namespace)
            self._options = parser._option_string_actions  # noqa: SLF001 - no public way to it
            self.namespace = dict(vars(found))
            return found

        def error(_: argparse.ArgumentParser, message: str) -> NoReturn:
            raise RefusedError(message)

        setattr(argparse.ArgumentParser, "parse_args", parse_args)  # noqa: B010 - it has a type
        setattr(argparse.ArgumentParser, "error", error)  # noqa: B010

    def given(self, argv: list[str]) -> Iterator[str]:
        """The fields of the flags in a command line."""
        for word in argv:
            option = self._options.get(word.split("=", 1)[0])
            if option is not None and option.dest not in VOLATILE:
                yield option.dest


def pretend(gpu: dict[str, Any]) -> None:
    """Answers for a GPU that is not here, wherever the handling of arguments asks for one."""
    torch = importlib.import_module("torch")
    with contextlib.suppress(ImportError):
        # Kernels ask once, when they are imported: before they could believe it.
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
            with contextlib.suppress(ValueError):  # a fact that this version does not ask for
                override(**{name: value}).install()
    for name, module in list(sys.modules.items()):
        if name.startswith(ARGUMENTS) or name == "sglang.srt.utils.common":
            for function, value in functions.items():
                if callable(getattr(module, function, None)):
                    setattr(module, function, always(value))


def override_platform() -> Callable[..., Any] | None:
    """SGLang's own way to say which machine this is, of 0.5.23 on."""
    with contextlib.suppress(ImportError):
        context = importlib.import_module("sglang.srt.runtime_context")
        found: Callable[..., Any] | None = getattr(context, "override_platform", None)
        return found
    return None


def facts_of(capability: tuple[int, ...]) -> dict[str, Any]:
    """What SGLang asks a machine about its GPU, by compute capability."""
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
    """A function that gives this value, whatever it is asked."""
    return lambda *_, **__: value


def resolved(argv: list[str]) -> object:
    """The arguments as SGLang would run them; raises what it raises."""
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
    """Its text, with nothing in it that a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())


def words(error: BaseException) -> str:
    """An exception on one line, with the place of a bare one."""
    text = one_line(error)
    if not text:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{Path(last.filename).name}, line {last.lineno}: {last.line}"
    return f"{type(error).__name__}: {text}"


def of_torch(error: BaseException) -> bool:
    """Whether PyTorch itself raised it: it looked for a GPU that is only pretended."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.sep}torch{os.sep}" in last.filename


def answer(
    argv: list[str], parsed: Parsed, base: dict[str, Any], *, pretended: bool
) -> dict[str, Any]:
    """What SGLang makes of one command line; `base` gains what is said for the first time."""
    try:
        view = resolved(argv)
    except RefusedError as error:
        return {"refused": one_line(error)}
    except SystemExit as error:
        return {"refused": f"it ends with exit code {error.code}"}
    except NO_ANSWER as error:
        return {"unanswered": words(error)}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        beside = pretended and (of_torch(error) or not isinstance(error, CHECKS))
        return {"unanswered" if beside else "refused": words(error)}
    values = {}
    for name in parsed.namespace.keys() - VOLATILE:
        value = plain(getattr(view, name, None))
        if name not in base or base[name] != value:
            values[name] = value
    for name, value in values.items():
        base.setdefault(name, value)
    asked = {name: plain(parsed.namespace.get(name)) for name in parsed.given(argv)}
    return {"values": values, "asked": asked}


def plain(value: object) -> object:
    """A value as JSON holds it."""
    return json.loads(json.dumps(value, default=str, skipkeys=True))


def main() -> None:
    """Reads the launches and answers."""
    # SGLang prints as it pleases, its libraries too.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)

    def say(said: dict[str, Any]) -> None:
        out.write(json.dumps(said, ensure_ascii=False) + "\n")
        out.flush()

    asked = json.load(sys.stdin)
    # SIGALRM ends it, wherever it stands still, and whether or not anybody waits for it any more.
    signal.alarm(math.ceil(asked["import_s"]))
    began = time.monotonic()
    parsed = Parsed()
    try:
        sglang = importlib.import_module("sglang")
        importlib.import_module("sglang.srt.server_args")
        if asked["gpu"]:
            pretend(asked["gpu"])
        with contextlib.suppress(ModuleNotFoundError):  # 0.5.9 has none
            # As `sglang.launch_server` does: they may change how arguments are handled.
            importlib.import_module("sglang.srt.plugins").load_plugins()
    except Exception as error:  # noqa: BLE001 - whatever keeps it from being asked
        say({"failed": words(error)})
        return
    say({"sglang": sglang.__version__, "import_s": time.monotonic() - began})
    base: dict[str, Any] = {}
    extra = ["--device", "cuda"] if asked["gpu"] else []
    environ = dict(os.environ)
    for number, launch in enumerate(asked["launches"]):
        if number <= 1:
            began = time.monotonic()  # with the first one much is imported that all others need
        if time.monotonic() - began > asked["seconds"]:
            break
        for name, value in launch["env"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        say(answer([*launch["argv"], *extra], parsed, base, pretended=bool(asked["gpu"])))
        if number == 0:
            signal.alarm(math.ceil(asked["seconds"]) + SLACK_S)
        os.environ.clear()
        os.environ.update(environ)


if __name__ == "__main__":
    main()
