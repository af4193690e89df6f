"""A launch command as people run it today, read into its parts. Pure: text in, values out."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.flags.flags import canonical_flag
from search_spaces.launch_commands.files import Kind, file_commands, kind_of
from search_spaces.launch_commands.flags import read_flags
from search_spaces.launch_commands.layers import InContainer, Layer, Words, one_line
from search_spaces.launch_commands.manifests import UnreadableFileError
from search_spaces.launch_commands.pasted import (
    argument_list,
    fenced,
    plain,
    shell_text,
    stated_command,
)
from search_spaces.launch_commands.script import launches
from search_spaces.launch_commands.services import of_service
from search_spaces.launch_commands.shell_expansion import live, live_names, shown
from search_spaces.launch_commands.shell_words import UnfinishedShellError
from search_spaces.launch_commands.words import (
    DEFAULT_ENTRY,
    Found,
    from_words,
    mentions_sglang,
    with_entry,
)
from search_spaces.secrets import (
    SECRET_FLAGS,
    is_reference,
    is_secret,
    redact_text,
    reference,
)
from search_spaces.simulated_acceptance import simulation_variables
from search_spaces.variables import unknown_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from search_spaces.study_file.values import FixedValue

_LOOKED_FOR = "looked for `python -m sglang.launch_server ...` and `sglang serve ...`"
_HERE = re.compile(
    r"<<-?[ \t]*[\"'\\]?(\w+)[\"']?[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE
)
_NO_SERVER = {
    "sglang_router": "starts a router, not a server; give the command of one server",
    "sglang.launch_router": "starts a router, not a server; give the command of one server",
    "dynamo.sglang": "starts SGLang within Dynamo; give the flags after it to "
    "`python -m sglang.launch_server`",
    "sglang.bench": "measures a server and starts none; give the server's own command",
    "vllm": "is another engine; give SGLang's command",
}


@dataclass(frozen=True, slots=True)
class Container:
    """The container that a command runs in.

    Attributes:
        engine: `"docker run"`, `"docker exec"` (or `podman`, `nerdctl`), `"kubectl exec"`,
            `"compose"`, `"kubernetes"`, `"dockerfile"`.
        image: The image; for `exec`, the container's or the pod's name.
        options: Words between the engine and the image (`--gpus all --ipc=host`); empty for files.
        service: The name in the file; empty where it has none.
    """

    engine: str
    image: str
    options: tuple[str, ...] = ()
    service: str = ""


@dataclass(frozen=True, slots=True)
class LaunchText:
    """A launch command, read.

    Attributes:
        text: The command as one line for a shell, secrets replaced by `$NAMES`: what
            `production.command` of a study holds.
        python: The interpreter (`"python3"`); `None` for `sglang serve`.
        prefix: Words before it that start it elsewhere or pinned (`srun ...`, `numactl ...`).
        env: Variables that the command sets, secrets replaced; `None` is one that it removes.
        flags: SGLang's flags by canonical name, without dashes: every flag of the command, those
            of model and speculation included. `True` is a switch; a tuple is several words.
        secrets: Names of the flags and variables that hold one; their values are `$NAMES`.
        written_out: Those of them that the text itself holds; they are left out here.
        variables: Names that are used and not set in the text, those of secrets left out; `(...)`
            for the output of a command. In the values they stand as `$NAME` and `$(...)`.
        container: Where it runs, if the text says so.
        notes: What was guessed or left out, as sentences for the user.
    """

    text: str
    flags: Mapping[str, FixedValue]
    env: Mapping[str, str | None] = field(default_factory=dict)
    python: str | None = None
    prefix: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    written_out: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    container: Container | None = None
    notes: tuple[str, ...] = ()


class UnreadableCommandError(ValueError):
    """The text holds no SGLang launch command; the message says what was looked for."""


def read_launch_text(
    text: str,
    *,
    kind: Kind | None = None,
    given: Mapping[str, str] | None = None,
    service: str | None = None,
    real_acceptance: bool = False,
) -> LaunchText:
    """Reads the launch of SGLang out of a command line or a whole file.

    The first command that starts a server counts. Nothing is run and no file is read: variables
    that the text does not set stay `$NAMES`.

    Args:
        text: One command, a shell script, a Dockerfile, a compose file, a Kubernetes manifest, a
            systemd unit, or any of them as pasted from a page; a line of `ps`, a JSON list of
            words, or what `/proc/PID/cmdline` holds.
        kind: Which of them it is; `None` guesses.
        given: Values of variables, which win over those that the text gives them.
        service: Of a file that starts several: the compose service, the container of a manifest
            or the program of supervisord. `None` takes the first that starts SGLang.
        real_acceptance: Whether variables that simulate acceptance are left out, with a note.

    Raises:
        UnreadableCommandError: It starts no server of SGLang, or cannot be read.
    """
    if (stated := stated_command(text)) is not None:
        text, kind = stated, "shell"
    clean = plain(text)
    if not clean.strip():
        raise UnreadableCommandError(f"The text is empty; {_LOOKED_FOR}")
    given = given or {}
    try:
        if found := _listed(text):
            return _read(found, real_acceptance=real_acceptance)
        for block in (*fenced(clean), clean):
            found = list(_found(block, kind or kind_of(block), given))
            if found:
                return _read(of_service(found, service), real_acceptance=real_acceptance)
    except (UnreadableFileError, UnfinishedShellError) as error:
        raise UnreadableCommandError(f"{error}; {_LOOKED_FOR}") from None
    except RecursionError:
        raise UnreadableCommandError(f"It is nested too deeply; {_LOOKED_FOR}") from None
    raise UnreadableCommandError(_why_not(clean))


def _listed(text: str) -> list[Found]:
    words = argument_list(text) or ()
    return list(from_words([plain(word) for word in words], {}, launches))


def _found(text: str, kind: Kind, given: Mapping[str, str]) -> Iterator[Found]:
    if kind == "shell":
        yield from _in_shell(shell_text(text), given)
        return
    read = functools.partial(launches, given=given)
    for command in file_commands(text, kind, given):
        if isinstance(command.command, str):
            inner = read(shell_text(command.command), command.env)
        else:
            image = command.container.image if command.container else ""
            words = with_entry(command.command, image)
            inner = from_words(words, command.env, read)
        around = (command.container,) if command.container else ()
        for found in inner:
            yield replace(
                found,
                layers=(*around, *found.layers),
                notes=(*command.notes, *found.notes),
                service=command.name,
            )


def _in_shell(text: str, given: Mapping[str, str]) -> list[Found]:
    read = functools.partial(launches, given=given)
    try:
        found = list(read(text))
    except UnfinishedShellError:
        # Prose around a command has quotes of its own.
        found = [f for part in _paragraphs(text) for f in read(part)]
        if not found:
            raise
    if not found:
        found = [f for part in _here_documents(text) for f in read(part)]
    if not found and text.lstrip().startswith("--"):
        entry = " ".join(DEFAULT_ENTRY)
        found = list(read(f"{entry} {text.lstrip()}"))
        note = f"It names no program; read as flags of `{entry}`"
        found = [replace(f, notes=(note, *f.notes)) for f in found]
    return found


def _here_documents(text: str) -> list[str]:
    """Scripts that a text writes to a file (`cat > run.sh <<EOF`)."""
    return [match[2].replace("\\$", "$") for match in _HERE.finditer(text)]


def _paragraphs(text: str) -> list[str]:
    """The lines that name SGLang's entry point, each with the lines that continue it."""
    joined = re.sub(r"\\\n", " ", text)
    return [line for line in joined.split("\n") if mentions_sglang(line)]


def _read(all_found: Sequence[Found], *, real_acceptance: bool) -> LaunchText:
    found = all_found[0]
    notes = list(found.notes)
    if real_acceptance and (simulation := simulation_variables(found.env)):
        kept = {name: value for name, value in found.env.items() if name not in simulation}
        found = replace(found, env=kept)
        notes.append(
            f"{', '.join(f'`{name}`' for name in simulation)} left out, also from the baseline "
            "'production': SGLang would simulate acceptance, with made-up accept lengths and wrong "
            "answers"
        )
    if len(all_found) > 1:
        notes.append(f"The text starts SGLang {len(all_found)} times; this is the first")
    read = read_flags(found.arguments, model_first=found.entry[-1:] == ("serve",))
    env: dict[str, str | None] = {}
    secrets, replaced = list(read.secrets), list(read.replaced)
    used = {name for word in read.words for name in live_names(word)}
    for name, value in found.env.items():
        passed_on = value is not None and name in live_names(value)
        if passed_on and name in used and unknown_variable(name) is not None:
            # For the command line alone: SGLang reads no variable of this name.
            continue
        if value is None:
            env[name] = None
        elif is_secret(name) or redact_text(value) != value:
            # An address with a password in it (`http_proxy`) is one as a whole.
            secrets.append(name)
            if value and not is_reference(shown(value)):
                replaced.append(name)
            env[name] = value if _is_live(value) else live(reference(name).lstrip("$"))
        elif passed_on:
            notes.append(f"`{name}` is passed on or extended from the caller's; left out")
        else:
            env[name] = value
    notes += [
        f"The value of `{name}` is a secret; it is written as `{reference(name)}`"
        for name in dict.fromkeys(replaced)
    ]
    layers = tuple(_redacted(layer) for layer in found.layers)
    open_env = {name: value for name, value in env.items() if name not in secrets}
    line = one_line(layers, env, (*found.entry, *read.words))
    container = next((layer for layer in layers if isinstance(layer, InContainer)), None)
    return LaunchText(
        text=line,
        flags=read.flags,
        env={name: None if value is None else shown(value) for name, value in env.items()},
        python=None if found.python is None else shown(found.python),
        prefix=tuple(
            shown(word) for layer in layers if isinstance(layer, Words) for word in layer.words
        ),
        secrets=tuple(dict.fromkeys(secrets)),
        written_out=tuple(dict.fromkeys(replaced)),
        variables=_variables(open_env, read.words, found, layers),
        container=None
        if container is None
        else Container(
            container.engine,
            shown(container.image),
            tuple(shown(word) for word in container.options),
            found.service,
        ),
        notes=tuple(dict.fromkeys((*notes, *read.notes))),
    )


def _is_live(value: str) -> bool:
    return value != shown(value) and is_reference(shown(value))


def _redacted(layer: Layer) -> Layer:
    if isinstance(layer, Words):
        return replace(layer, words=tuple(redact_text(word) for word in layer.words))
    return replace(layer, options=tuple(redact_text(word) for word in layer.options))


def _variables(
    env: Mapping[str, str | None], words: Sequence[str], found: Found, layers: Sequence[Layer]
) -> tuple[str, ...]:
    texts = [value for value in env.values() if value is not None]
    for before, word in zip(("", *words), words, strict=False):
        flag = word.partition("=")[0] if word.startswith("--") else before
        if canonical_flag(flag) not in SECRET_FLAGS:
            texts.append(word)
    texts += found.entry
    for layer in layers:
        texts += layer.words if isinstance(layer, Words) else (layer.image, *layer.options)
    return tuple(dict.fromkeys(name for text in texts for name in live_names(text)))


def _why_not(text: str) -> str:
    for name, why in _NO_SERVER.items():
        if name in text:
            return f"`{name}` {why}; {_LOOKED_FOR}"
    return f"No command in it starts SGLang; {_LOOKED_FOR}"
