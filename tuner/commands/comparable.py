"""Whether what is measured now may stand beside what a stored study has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import Machine
from tuner.commands.stored import told
from tuner.errors import CommandError
from tuner.identity import Difference, machine_differences
from tuner.same_load import SameLoad

if TYPE_CHECKING:
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces import Study
    from search_spaces.stored_study import StoredFile


def differences_of_machine(
    store: Store, stored: StoredStudy, servers: Runner
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """What of engine and machine differs from where the study was measured."""
    known = [x.machine for x in store.launches(stored.id) if x.machine is not None]
    now = servers.machine()
    if not known:
        # Of a database older than these facts, or before the first launch.
        return machine_differences(Machine(sglang=stored.sglang_version), now, uses_gpus=False)
    uses_gpus = servers.devices() != ("cpu",)
    found, _ = machine_differences(known[0], now, uses_gpus=uses_gpus)
    # What only deserves a word is told once: compared with the last launch.
    _, notes = machine_differences(known[-1], now, uses_gpus=uses_gpus)
    return found, notes


def differences_of_load(
    store: Store, stored: StoredStudy, study: Study, servers: Runner
) -> tuple[Difference, ...]:
    """Whether the prompts that would be sent are others, whatever the file says."""
    changed = SameLoad(stored, store).changed(servers, study.to_workload())
    return (
        () if changed is None else (Difference("workload", f"workload: the prompts at {changed}"),)
    )


def refuse_unread(stored: StoredStudy, read: StoredFile) -> None:
    """Raises where launches would be of another study than the stored one."""
    if read.unread:
        lines = "\n".join(f"  {told(problem)}" for problem in read.unread)
        raise CommandError(
            f"study {stored.name} cannot go on: this version does not understand all of its "
            f"stored file\n{lines}\n`tuner show` and `tuner export` still tell what it measured; "
            "go on with the version of the tuner that began it, or with a corrected copy of its "
            "file: `tuner resume --study FILE --fork NEW`"
        )
