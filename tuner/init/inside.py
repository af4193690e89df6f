"""How to run the tuner in the container of today's server."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tuner.init.commented_yaml import wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from search_spaces.launch_commands import Container, LaunchText

_NOT_INSIDE = ("-d", "--detach", "-it", "-ti", "-i", "-t", "--interactive", "--tty")
_LIVE_WORD = re.compile(r"[\w@%+=:,./~${}-]+")
_PLACES = {
    "compose": "a compose file",
    "kubernetes": "a Kubernetes manifest",
    "dockerfile": "a Dockerfile",
}


def container_advice(launch: LaunchText | None, inherited: Sequence[str]) -> tuple[str, ...]:
    """Say how to run the tuner in the server's container, if there is one.

    Args:
        launch: Today's command, if any.
        inherited: Variables that the command takes from the shell.
    """
    if launch is None or launch.container is None or launch.container.engine.endswith(" exec"):
        return ()
    container = launch.container
    advice = _how(container, inherited)
    if container.image:
        said = f"Exports for containers take today's image by `--image {_word(container.image)}`."
        advice += tuple(wrapped(said, "", ""))
    return advice


def _how(container: Container, inherited: Sequence[str]) -> tuple[str, ...]:
    if not container.engine.endswith(" run"):
        return _inside_of_a_file(container)
    words = [*container.engine.split(), "-it", *_inside_options(container.options)]
    words += [word for name in inherited for word in ("-e", name)]
    command = " ".join(_word(word) for word in words)
    said = (
        "Today's server is a container of its own, which a tuner outside cannot surely end: run "
        "the tuner inside of one, with the same options:"
    )
    return (
        *wrapped(said, "", ""),
        f'  {command} -v "$PWD":"$PWD" -w "$PWD" {_word(container.image)} bash',
        "and in there `pip install` the tuner, then go on as below.",
    )


def _inside_of_a_file(container: Container) -> tuple[str, ...]:
    """Command that opens a shell in a container that a file describes, instead of its server."""
    where = _PLACES.get(container.engine, container.engine)
    image = f" of image {container.image}" if container.image else ""
    here = '-v "$PWD":"$PWD" -w "$PWD"'
    said = f"Today's server runs in a container{image} ({where}): run the tuner inside of one like "
    if container.engine == "compose":
        service = _word(container.service or "SERVICE")
        said += "it. Beside the compose file:"
        commands = [
            f"docker compose stop {service}",
            f"docker compose run --rm {here} --entrypoint bash {service}",
        ]
    elif container.engine == "dockerfile":
        said += "it. Beside the Dockerfile:"
        commands = [
            "docker build -t sglang-here .",
            f"docker run -it --rm --gpus all --ipc=host {here} --entrypoint bash sglang-here",
        ]
    else:
        named = f" of container {container.service}" if container.service else ""
        option = f" -c {_word(container.service)}" if container.service else ""
        said += (
            "it. In a copy of the manifest, without probes, put `command: [sleep, infinity]` in "
            f"place of command and args{named}, apply it in place of today's, and open a shell:"
        )
        commands = [f"kubectl exec -it POD{option} -- bash"]
    return (
        *wrapped(said, "", ""),
        *(f"  {command}" for command in commands),
        "and in there `pip install` the tuner, then go on as below, with the study there.",
    )


def _word(word: str) -> str:
    """Quote a word for a shell that still expands `~` and `$HOME`."""
    return word if _LIVE_WORD.fullmatch(word) else shlex.quote(word)


def _inside_options(options: tuple[str, ...]) -> list[str]:
    """Options of the container without those of a single server: name, ports, restarts."""
    out: list[str] = []
    skip = False
    for option in options:
        if skip:
            skip = False
            continue
        if option in {"-p", "--publish", "--name", "--restart"}:
            skip = True
            continue
        if option in _NOT_INSIDE or option.startswith(("--publish=", "--name=", "--restart=")):
            continue
        out.append(option)
    return out
