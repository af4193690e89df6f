"""Read today's launch command into its parts. Pure functions: text in, values out."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.flags.flags import canonical_flag
from search_spaces.launch_commands.files import Kind, UnreadableFileError, file_commands, kind_of
from search_spaces.launch_commands.flags import read_flags
from search_spaces.launch_commands.layers import InContainer, Layer, Words, one_line
from search_spaces.launch_commands.pasted import (
    argument_list,
    fenced,
    plain,
    shell_text,
    stated_command,
)
from search_spaces.launch_commands.script import launches
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

    from search_spaces.launch_commands.words import Found
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
    """Container of a command.

    Attributes:
        engine: `"docker run"`, `"docker exec"` (or `podman`, `nerdctl`), `"kubectl exec"`,
            `"compose"`, `"kubernetes"`, `"dockerfile"`.
        image: Image; for `exec`, the name of the container or pod.
        options: Words between engine and image (`--gpus all --ipc=host`); empty for files.
        service: Name in the file; empty without a name.
    """

    engine: str
    image: str
    options: tuple[str, ...] = ()
    service: str = ""


@dataclass(frozen=True, slots=True)
class LaunchText:
    """A launch command.

    Attributes:
        text: The command as one line for a shell, with secrets as `$NAMES`; the value of
            `production.command` in a study.
        python: Interpreter (`"python3"`); `None` for `sglang serve`.
        prefix: Words before it that pin it or start it elsewhere (`srun ...`, `numactl ...`).
        env: Variables that the command sets, with secrets replaced; `None` removes one.
        flags: All SGLang flags by canonical name without dashes. `True` is a switch, a tuple
            several words.
        secrets: Names of flags and variables with secrets; their values are `$NAMES`.
        written_out: Secrets that the text itself contains; they are removed here.
        variables: Names that are used but not set in the text, without secrets; `(...)` for the
            output of a command. Values contain `$NAME` and `$(...)`.
        container: Its container, if the text names one.
        notes: Notes for the user on guesses and omissions.
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
    """The text has no SGLang launch command; the message says what was expected."""


def read_launch_text(
    text: str,
    *,
    kind: Kind | None = None,
    given: Mapping[str, str] | None = None,
    service: str | None = None,
    real_acceptance: bool = False,
) -> LaunchText:
    """Read the SGLang launch in a command line or a file.

    The first command that starts a server counts. Nothing is run and no file is read; variables
    that the text does not set stay `$NAMES`.

    Args:
        text: A command, shell script, Dockerfile, compose file, Kubernetes manifest or systemd
            unit, also as pasted from a page; a line of `ps`, a JSON list of words, or
            `/proc/PID/cmdline`.
        kind: Kind of the text; `None`: guess.
        given: Values of variables; they override values of the text.
        service: If the file starts several: compose service, container of a manifest or program of
            supervisord. `None`: the first that starts SGLang.
        real_acceptance: Whether to drop variables that simulate acceptance, with a note.

    Raises:
        UnreadableCommandError: The text starts no SGLang server, or cannot be read.
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
        # Prose around a command may contain quotes.
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
    """Lines that name SGLang's entry point, each with its continuation lines."""
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
            # SGLang reads no variable of this name; it only builds the command line.
            continue
        if value is None:
            env[name] = None
        elif is_secret(name) or redact_text(value) != value:
            # An address with a password (`http_proxy`) counts as a secret.
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


def of_service(found: list[Found], service: str | None) -> list[Found]:
    """Launches of the given service, or of the first one.

    Raises:
        UnreadableFileError: No service of this name starts SGLang.
    """
    names = list(dict.fromkeys(each.service for each in found if each.service))
    if service is not None and service not in names:
        known = f"; those that start SGLang are {', '.join(names)}" if names else ""
        raise UnreadableFileError(f"There is no service {service} in it{known}")
    if len(names) < 2 and service is None:
        return found
    wanted = service if service is not None else found[0].service
    mine = [each for each in found if each.service == wanted]
    others = [name for name in names if name != wanted]
    if service is None:
        note = (
            f"The file starts SGLang in {', '.join(names)}; this is {wanted}. For another one: "
            f"`--service {others[0]}`"
        )
        mine[0] = replace(mine[0], notes=(note, *mine[0].notes))
    return mine
