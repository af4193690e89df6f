"""Content of today's launch command, by its place in a study."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NAMES
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flags import BELONGS_ELSEWHERE, canonical_flag_value
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
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_AMD_VARIABLES = ("ROCM_", "HSA_", "HIP_", "RCCL_", "AITER_", "SGLANG_USE_AITER")
_GRAPH_BATCHES = (
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
    "cuda-graph-bs",
    "cuda-graph-bs-decode",
)
_ADAPTIVE = ("speculative-adaptive", "speculative-adaptive-config")


@dataclass(frozen=True, slots=True)
class Today:
    """Today's server.

    Attributes:
        model: Path of the model.
        draft: Path of the draft; `None` without a draft.
        algorithm: Name in a study: `"none"` without speculation, `"NEXTN"` for EAGLE without a
            draft.
        why_algorithm: Origin of the algorithm, for the study's comment.
        num_steps: Draft steps; `None` if SGLang decides.
        topk: topk.
        num_draft_tokens: Draft tokens.
        adaptive: Flags of adaptive speculation, if on.
        flags: All other flags, in the command's order.
        env: Variables, in the command's order; `None` removes one.
        inherited: Variables with secrets, whose values come from the shell.
        python: Interpreter, if the command names one by path.
        prefix: Words before the command.
        command: The whole command; `None` if the server was described by answers.
        image: Container image; empty without a container.
        notes: Notes for the user.
        version: SGLang version of the study, if known.
        renamed: Today's flag names by their new names in that version.
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
        """Value of a flag if it is a whole number."""
        value = self.flags.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    @property
    def graph_batches(self) -> tuple[int, ...]:
        """Batch sizes for which the command captures CUDA graphs of decoding."""
        values = (self.flags.get(name) for name in _GRAPH_BATCHES)
        each = (v for value in values for v in (value if isinstance(value, tuple) else (value,)))
        return tuple(v for v in each if isinstance(v, int) and not isinstance(v, bool))

    @property
    def gpus(self) -> int:
        """Number of GPUs that a server uses on all its machines; 1 without GPUs."""
        return max(gpus_of_server(self.flags), 1)

    @property
    def machines(self) -> int:
        """Number of machines of a server."""
        return nodes_of(self.flags)

    @property
    def other_device(self) -> str | None:
        """Device other than NVIDIA GPUs, if the command names one."""
        if (device := self.flags.get("device", "cuda")) != "cuda":
            return f"device {device}"
        amd = "rocm" in self.image or any(name.startswith(_AMD_VARIABLES) for name in self.env)
        return "AMD GPUs" if amd else None


def read_today(launch: LaunchText) -> Today:
    """Sort the parts of a command."""
    given = dict(launch.flags)
    notes = list(launch.notes)
    draft = _text(given.get(DRAFT))
    numbers = {key: _number(value) for key, value in speculation_numbers(given).items()}
    algorithm, unknown = _algorithm(given.get(ALGORITHM), draft)
    if unknown:
        notes.append(unknown)
    adapts = bool(given.get("speculative-adaptive"))
    adaptive = {n: given[n] for n in _ADAPTIVE if adapts and given.get(n) is not None}
    apart = {*BELONGS_ELSEWHERE, *adaptive}
    inherited = tuple(name for name in launch.env if name in launch.secrets)
    env = {name: value for name, value in launch.env.items() if name not in inherited}
    for names, problem in _unsound(env):
        env = {name: value for name, value in env.items() if name not in names}
        notes.append(f"{problem} (left out of the study, but for its baseline 'production')")
    prefix = prefix_of(launch)
    # With a prefix (`docker exec`) the interpreter is not one of this machine.
    certain = launch.python is not None and (bool(prefix) or "/" in launch.python)
    return Today(
        model=_text(given.get("model-path")) or "",
        draft=draft,
        algorithm=algorithm,
        why_algorithm="today's algorithm",
        num_steps=numbers.get("num_steps"),
        topk=numbers.get("topk"),
        num_draft_tokens=numbers.get("num_draft_tokens"),
        adaptive=adaptive,
        flags={name: value for name, value in given.items() if name not in apart},
        env=env,
        inherited=inherited,
        python=launch.python if certain else None,
        prefix=prefix,
        command=launch.text,
        image=launch.container.image if launch.container is not None else "",
        notes=tuple(notes),
    )


def _unsound(env: Mapping[str, str | None]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Variables with values that NCCL or SGLang refuse."""
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
    """Words that a study puts before its launch commands.

    `docker exec` enters an existing container and is kept. `docker run` would create a container
    per launch, which signals may not stop, so `docker run` and the words before it are left out.
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
    """Replace `-it` by `-i`: servers have no terminal, and `docker exec -t` requires one."""
    if option in {"--tty", "--detach"}:
        return ""
    if not re.fullmatch(r"-[a-z]*[td][a-z]*", option):
        return option
    left = option.replace("t", "").replace("d", "")
    return left if left != "-" else ""


def with_values(launch: LaunchText, values: Mapping[str, str]) -> LaunchText:
    """Replace `$NAMES` in a command.

    Args:
        launch: The command.
        values: Plain words (`is_plain_word`), which need no quotes.
    """

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


def is_plain_word(value: str) -> bool:
    """Whether a shell reads a value unchanged, with and without quotes."""
    return _PLAIN_WORD.fullmatch(value) is not None


def unresolved(launch: LaunchText) -> tuple[str, ...]:
    """Variables and computed values (`"(nproc)"`) that the server needs.

    Variables of container options belong to the shell that starts the container. Secrets remain
    references.
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


def _algorithm(value: FixedValue, draft: str | None) -> tuple[str, str]:
    """Algorithm in the syntax of a study, and a note if it is not valid."""
    if not isinstance(value, str) or value.lower() == NO_SPECULATION:
        return NO_SPECULATION, ""
    name = value.upper()
    if name not in NAMES:
        return NO_SPECULATION, (
            f"speculative-algorithm {value} cannot be searched by the tuner; the study has none of "
            f"it ({', '.join(ALGORITHMS)} can be)"
        )
    # EAGLE without a draft uses the model's MTP layers; studies name that NEXTN.
    return ("NEXTN" if name == "EAGLE" and draft is None else name), ""


def _text(value: FixedValue) -> str | None:
    return str(value) if value is not None and not isinstance(value, bool | tuple) else None


def _number(value: FixedValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
