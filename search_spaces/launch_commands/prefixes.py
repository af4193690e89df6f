"""`server.prefix`: whether it pins a server on this machine, or starts it elsewhere."""

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
    """The words that an exported command begins with; none where they start it elsewhere.

    The first word decides, unless one behind it goes elsewhere all the same (`numactl ... docker
    exec`), or `env` would empty the environment that the command is given.

    Args:
        prefix: A study's `server.prefix`.
        variables: What the command sets or removes itself: it wins over `env` in the prefix, as it
            does in a trial.
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
