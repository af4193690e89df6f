"""`server.prefix`: whether the server starts on this machine or elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_PINNING = frozenset(
    {"numactl", "taskset", "chrt", "nice", "ionice", "env", "prlimit", "stdbuf", "chpst"}
)
"""Programs that change something of their process and then become the command behind them."""

_ELSEWHERE = frozenset(
    {"docker", "podman", "nerdctl", "kubectl", "oc", "crictl", "apptainer", "singularity", "enroot",
     "srun", "mpirun", "mpiexec", "ssh", "nsenter", "chroot", "machinectl", "lxc"}
)  # fmt: skip
"""Programs that start it in a container, on another machine, or in another view of this one."""

_EMPTIES = frozenset({"-", "-i", "--ignore-environment"})
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=.*", re.DOTALL)
_REMOVED = re.compile(r"(?:-u|--unset=)([A-Za-z_]\w*)")


def prefix_here(prefix: Sequence[str], variables: Collection[str] = ()) -> tuple[str, ...]:
    """First words of an exported command; none if the prefix starts the server elsewhere.

    The first word decides, unless a later one starts the server elsewhere (`numactl ... docker
    exec`), or `env` would clear the command's environment.

    Args:
        prefix: `server.prefix` of a study.
        variables: Variables that the command sets or removes; they override `env` in the prefix, as
            in a trial.
    """
    names = [word.rsplit("/", 1)[-1] for word in prefix]
    if not names or names[0] not in _PINNING or not _ELSEWHERE.isdisjoint(names):
        return ()
    if "env" in names and not _EMPTIES.isdisjoint(names[names.index("env") :]):
        return ()
    return tuple(_without(list(prefix), variables)) if "env" in names else tuple(prefix)


def _without(words: list[str], variables: Collection[str]) -> list[str]:
    kept: list[str] = []
    while words:
        word = words.pop(0)
        found = _ASSIGNED.fullmatch(word) or _REMOVED.fullmatch(word)
        if word in {"-u", "--unset"} and words[:1] and words[0] in variables:
            words.pop(0)
        elif found is None or found[1] not in variables:
            kept.append(word)
    return kept
