"""Today's launch command, sorted by the keys of a study, with the flag names of one version."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runners.process.environment import PYTHON_VARIABLE
from search_spaces.algorithms import ALGORITHMS, NAMES
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flag_values import flag_problem
from search_spaces.flags.flags import BELONGS_ELSEWHERE, canonical_flag, canonical_flag_value
from search_spaces.flags.options import REPLACED, VERSIONS, options
from search_spaces.flags.speculation_flags import ALGORITHM, DRAFT, speculation_numbers
from search_spaces.gpus import gpus_of_server, nodes_of
from search_spaces.nccl.values import crossed_bounds, nothing_left
from search_spaces.secrets import is_secret
from search_spaces.variables import value_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.configuration import Value
    from search_spaces.flags.options import Version
    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.values import FixedValue

_VARIABLE = r"\$(?:\{NAME\}|NAME(?![A-Za-z0-9_]))"
_AMD_VARIABLES = ("ROCM_", "HSA_", "HIP_", "RCCL_", "AITER_", "SGLANG_USE_AITER")
_GRAPH_BATCHES = (
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
    "cuda-graph-bs",
    "cuda-graph-bs-decode",
)
_ADAPTIVE = ("speculative-adaptive", "speculative-adaptive-config")
_VERSION = re.compile(r"(?<![\d.])v?(\d+)\.(\d+)\.(\d+)")
_SUCCESSOR = re.compile(r"`--([\w-]+)(?: ([\w-]+))?`")
_ASK_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"


@dataclass(frozen=True, slots=True)
class Today:
    """Today's server, from its launch command or from answers.

    Attributes:
        model: Model path.
        draft: Path of the draft model.
        algorithm: Spelling of a study: `"none"`, or `"NEXTN"` for EAGLE without a draft.
        why_algorithm: Source of the algorithm, for the study's comment.
        num_steps: Draft steps; `None` if SGLang decides.
        topk: Topk; `None` if SGLang decides.
        num_draft_tokens: Draft tokens; `None` if SGLang decides.
        adaptive: Flags of adaptive speculation, if on.
        flags: Other flags in the order of the command.
        env: Variables in the order of the command; `None` removes one.
        inherited: Secret variables, whose values the command takes from the shell.
        python: Interpreter, if the command names a certain one.
        prefix: Words before the command.
        command: The whole command, if it is a baseline.
        image: Container image; empty without one.
        notes: Sentences for the user.
        version: SGLang version that will run, if known.
        renamed: Today's flag names by the names in `version`, if different.
    """

    model: str
    draft: str | None = None
    algorithm: str = NO_SPECULATION
    why_algorithm: str = ""
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    adaptive: Mapping[str, FixedValue] = field(default_factory=dict)
    flags: Mapping[str, FixedValue] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    python: str | None = None
    prefix: tuple[str, ...] = ()
    command: str | None = None
    image: str = ""
    notes: tuple[str, ...] = ()
    version: Version | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int) -> int:
        """Return the value of a flag if it is a whole number, else the default."""
        value = _number(self.flags.get(name))
        return default if value is None else value

    @property
    def graph_batches(self) -> tuple[int, ...]:
        """CUDA graph batch sizes for decoding that the command names."""
        values = (self.flags.get(name) for name in _GRAPH_BATCHES)
        each = (v for value in values for v in (value if isinstance(value, tuple) else (value,)))
        return tuple(number for v in each if (number := _number(v)) is not None)

    @property
    def gpus(self) -> int:
        """GPUs of the server on all machines; 1 for a server without GPUs."""
        return max(gpus_of_server(self.flags), 1)

    @property
    def machines(self) -> int:
        """Machines of the server."""
        return nodes_of(self.flags)

    @property
    def other_device(self) -> str | None:
        """Device that is not an NVIDIA GPU, if the command shows one."""
        if (device := self.flags.get("device", "cuda")) != "cuda":
            return f"device {device}"
        amd = "rocm" in self.image or any(name.startswith(_AMD_VARIABLES) for name in self.env)
        return "AMD GPUs" if amd else None


def read_today(launch: LaunchText) -> Today:
    """Sort the parts of a command by the keys of a study."""
    given = dict(launch.flags)
    notes = list(launch.notes)
    draft = _text(given.get(DRAFT))
    numbers = {key: _number(value) for key, value in speculation_numbers(given).items()}
    algorithm = given.get(ALGORITHM)
    name = algorithm.upper() if isinstance(algorithm, str) else NO_SPECULATION.upper()
    if name == NO_SPECULATION.upper():
        name = NO_SPECULATION
    elif name not in NAMES:
        notes.append(
            f"the tuner cannot search speculative-algorithm {algorithm}, so the study leaves it "
            f"out; supported: {', '.join(ALGORITHMS)}"
        )
        name = NO_SPECULATION
    elif name == "EAGLE" and draft is None:
        name = "NEXTN"  # EAGLE without a draft uses the model's own MTP layers
    adaptive = {}
    if given.get(_ADAPTIVE[0]):
        adaptive = {name: given[name] for name in _ADAPTIVE if given.get(name) is not None}
    elsewhere = {*BELONGS_ELSEWHERE, *adaptive}
    inherited = tuple(name for name in launch.env if name in launch.secrets)
    env = {name: value for name, value in launch.env.items() if name not in inherited}
    for names, problem in _unsound(env):
        env = {name: value for name, value in env.items() if name not in names}
        notes.append(f"{problem} (only the baseline 'production' keeps it)")
    prefix = prefix_of(launch)
    # The interpreter behind a prefix differs from the tuner's own.
    certain = launch.python is not None and (bool(prefix) or "/" in launch.python)
    return Today(
        model=_text(given.get("model-path")) or "",
        draft=draft,
        algorithm=name,
        why_algorithm="today's algorithm",
        num_steps=numbers.get("num_steps"),
        topk=numbers.get("topk"),
        num_draft_tokens=numbers.get("num_draft_tokens"),
        adaptive=adaptive,
        flags={name: value for name, value in given.items() if name not in elsewhere},
        env=env,
        inherited=inherited,
        python=launch.python if certain else None,
        prefix=prefix,
        command=launch.text,
        image=launch.container.image if launch.container is not None else "",
        notes=tuple(notes),
    )


def _unsound(env: Mapping[str, str | None]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find variables that NCCL or SGLang refuse, which no study may contain."""
    sound = {name: value for name, value in env.items() if value is not None}
    for name, value in tuple(sound.items()):
        if (problem := value_problem(name, value)) is not None:
            del sound[name]
            yield (name,), f"{name}: {problem}"
    for least, most, problem in tuple(crossed_bounds(sound)):
        sound.pop(least, None)
        sound.pop(most, None)
        yield (least, most), problem
    if (problem := nothing_left(sound)) is not None:
        yield ("NCCL_ALGO", "NCCL_PROTO"), problem


def prefix_of(launch: LaunchText) -> tuple[str, ...]:
    """Return the words that a study puts before the commands of its servers.

    `docker exec` enters a running container, and stays. `docker run` would start a container per
    launch, which signals may not end; it is left out with the words before it.
    """
    container = launch.container
    if container is None:
        return launch.prefix
    entered: tuple[str, ...] = ()
    options = tuple(filter(None, map(_without_terminal, container.options)))
    if container.engine == "kubectl exec":
        entered = ("kubectl", "exec", container.image, *options, "--")
    elif container.engine.endswith(" exec"):
        entered = (*container.engine.split(), *options, container.image)
    start = launch.text.find(container.engine.rsplit(" ", maxsplit=1)[-1] + " ")
    inside = bool(launch.prefix) and launch.text.find(f"{launch.prefix[0]} ") > start >= 0
    if inside:
        return (*entered, *launch.prefix)
    return (*launch.prefix, *entered) if entered else ()


def _without_terminal(option: str) -> str:
    """Turn `-it` into `-i`, because `docker exec -t` needs a terminal, which servers lack."""
    if option in {"--tty", "--detach"}:
        return ""
    if not re.fullmatch(r"-[a-z]*[td][a-z]*", option):
        return option
    short = option.replace("t", "").replace("d", "")
    return short if short != "-" else ""


def with_values(launch: LaunchText, values: Mapping[str, str]) -> LaunchText:
    """Replace `$NAMES` in a command by plain words, which need no quotes."""

    def plain(text: str) -> str:
        for name, value in values.items():
            text = value.join(_pattern(name).split(text))
        return text

    def one(value: Value) -> Value:
        return canonical_flag_value(plain(value)) if isinstance(value, str) else value

    def each(value: FixedValue) -> FixedValue:
        return tuple(map(one, value)) if isinstance(value, tuple) else one(value)

    return replace(
        launch,
        text=plain(launch.text),
        flags={name: each(value) for name, value in launch.flags.items()},
        env={k: plain(v) if v is not None else None for k, v in launch.env.items()},
        prefix=tuple(map(plain, launch.prefix)),
        python=plain(launch.python) if launch.python is not None else None,
        variables=tuple(name for name in launch.variables if name not in values),
    )


def unresolved(launch: LaunchText) -> tuple[str, ...]:
    """Return the variables and computed values (`"(nproc)"`) that the server itself needs.

    The shell that starts a container sets those of its options; secrets stay references.
    """
    texts = [launch.python or "", *launch.prefix]
    for name, value in launch.flags.items():
        if not is_secret(name):
            texts += map(str, value if isinstance(value, tuple) else (value,))
    texts += [value or "" for name, value in launch.env.items() if not is_secret(name)]
    whole = "\n".join(texts)
    return tuple(
        name for name in launch.variables if not is_secret(name) and _pattern(name).search(whole)
    )


def _pattern(name: str) -> re.Pattern[str]:
    if name.startswith("("):
        return re.compile(re.escape(f"${name}"))
    return re.compile(_VARIABLE.replace("NAME", re.escape(name)))


def version_that_runs(launch: LaunchText | None, *, runner: str, here: bool) -> Version | None:
    """Return the newest known SGLang version that is not newer than the one that will run.

    Args:
        launch: Today's command, if there is one.
        runner: Registered name of the runner; the simulated server has the newest version.
        here: Whether an interpreter of this machine starts the server.
    """
    if runner == "simulated":
        return "0.5.23"
    if launch is not None and launch.container is not None:
        image = launch.container.image
        return _known_version(image.rsplit(":", 1)[-1]) if "sglang" in image else None
    if not here:
        return None
    python = launch.python if launch is not None else None
    return _known_version(_installed(python if python is not None and "/" in python else None))


def _known_version(text: str) -> Version | None:
    found = _VERSION.search(text)
    if found is None:
        return None
    own = tuple(map(int, found.groups()))
    known = [v for v in VERSIONS if tuple(map(int, v.split("."))) <= own]
    return known[-1] if known else VERSIONS[0]  # type: ignore[return-value]


def _installed(python: str | None) -> str:
    """Return the SGLang version of an interpreter; empty without SGLang."""
    python = python or os.environ.get(PYTHON_VARIABLE)
    if not python:
        try:
            return importlib.metadata.version("sglang")
        except importlib.metadata.PackageNotFoundError:
            return ""
    try:
        return subprocess.run(
            [python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def with_new_names(
    launch: LaunchText, version: Version | None
) -> tuple[LaunchText, dict[str, str]]:
    """Give flags the names that a version has for them.

    A flag that changed its meaning too (a switch that became a number) stays, with the reader's
    note.

    Returns:
        The command, and today's names of the renamed flags by their new names.
    """
    renamed: dict[str, str] = {}
    known = options(version) if version is not None else {}
    for old, value in tuple(launch.flags.items()):
        found = _SUCCESSOR.fullmatch(REPLACED.get(old, ""))
        if found is None or old in known or found[1] not in known or found[1] in launch.flags:
            continue
        new, choice = found[1], found[2]
        own: FixedValue = value if choice is None else choice
        if flag_problem(new, own) is not None or (choice and value is not True):
            continue
        spelled = re.escape(old).replace(r"\-", "[-_]")
        words = f"--{new}" if choice is None else f"--{new} {choice}"
        text, count = re.subn(rf"(?<!\S)--{spelled}(?=[\s=]|$)", words, launch.text)
        if not count:
            continue
        flags = {new if n == old else n: own if n == old else v for n, v in launch.flags.items()}
        # The new name settles the reader's note on the old one.
        notes = [note for note in launch.notes if not _is_about(note, old)]
        notes.append(f"`--{old}` is written as `{words}`, its name in SGLang {version}")
        launch = replace(launch, text=text, flags=flags, notes=tuple(notes))
        renamed[new] = old
    return launch, renamed


def _is_about(note: str, name: str) -> bool:
    found = re.match(r"`--?([\w.-]+)` ", note)
    return found is not None and canonical_flag(found[1]) == name


def _text(value: FixedValue) -> str | None:
    return str(value) if value is not None and not isinstance(value, bool | tuple) else None


def _number(value: FixedValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
