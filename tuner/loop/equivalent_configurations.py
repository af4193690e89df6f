"""Configurations that decode alike although their NCCL variables differ.

If SGLang's own all-reduce kernel handles decoding, NCCL variables do not affect decoding. The
study then measures one of the configurations that differ only in NCCL variables, if possible the
one that sets none. The log of a launch shows which kernel handles decoding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure, LaunchState, TrialState
from runners.sglang.machine import joined_by_nvlink
from runners.sglang.server_log import own_kernel_in
from search_spaces.nccl.all_reduce import (
    MIB,
    NCCL_UNUSED,
    V1_BYTES,
    OwnKernel,
    carries_decoding,
    hidden_size,
    may_have_own_kernel,
    nccl_knobs,
    scope,
    token_bytes,
    without_nccl,
)
from tuner.formatting import describe

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from results.records import Launch, Machine, Trial
    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from search_spaces.study_file.study import Study


class EquivalentConfigurations:
    """Finds points that need no launch. Derives everything from the logs of the launches.

    Args:
        study: The study.
        space: Its legal points.
        baselines: Baselines by name. Every baseline is measured.
    """

    def __init__(self, study: Study, space: Space, baselines: Mapping[str, Configuration]) -> None:
        self._study = study
        self._space = space
        self._baselines = frozenset(baselines.values())
        self.varies_nccl = bool(nccl_knobs(study))
        """Whether the study varies NCCL variables."""
        self._kernels: dict[Hashable, OwnKernel | None] = {}
        self._read: set[int] = set()

    def learn(self, launches: Iterable[Launch]) -> bool:
        """Read the logs of finished launches; return whether one shows a kernel."""
        if not self.varies_nccl:
            return False
        found = False
        for launch in launches:
            if launch.id in self._read or launch.state is LaunchState.RUNNING:
                continue
            self._read.add(launch.id)
            where = scope(self._study, launch.intent.configuration)
            if self._kernels.get(where) is not None:
                continue
            served = launch.ready_s is not None
            kernel = own_kernel_in(
                launch.intent.log,
                dict(launch.effective_environment),
                nvlink=served and _nvlink(launch.machine),
            )
            if kernel is not None:
                self._kernels[where] = replace(kernel, seen=f"log of launch {launch.id}")
                found = True
            elif served:
                self._kernels[where] = None
        return found

    def expected(self, machine: Machine) -> frozenset[Configuration]:
        """Points that will probably be inactive on a machine.

        Empty unless NVLink connects all GPUs: over PCIe only a running server finds out whether
        two GPUs reach each other (`custom_all_reduce_utils.py`, 0.5.9 to 0.5.23). Assumes the
        smaller size limit, which is that of versions without the newer kernel.
        """
        if not self.varies_nccl or not _nvlink(machine):
            return frozenset()
        kernel = OwnKernel("custom all-reduce", V1_BYTES)
        return frozenset(point for point, _, _ in self._equivalents((), lambda _: kernel))

    def measured_first(
        self, configuration: Configuration, judged: Collection[str]
    ) -> Configuration:
        """The configuration to launch before `configuration`, or `configuration` itself.

        While no log shows whether NCCL handles decoding, this is the configuration without NCCL
        variables.

        Args:
            configuration: Proposal of the planner.
            judged: Keys of judged configurations.
        """
        plain = without_nccl(configuration)
        if (
            plain == configuration
            or plain.key in judged
            or scope(self._study, configuration) in self._kernels
            or not may_have_own_kernel(self._study, configuration)
            or plain not in self._space
        ):
            return configuration
        return plain

    def inactive(self, trials: Sequence[Trial]) -> Iterator[tuple[Configuration, Failure]]:
        """Unjudged points that need no launch, each with the reason."""
        for point, same, kernel in self._equivalents(
            trials, lambda point: self._kernels.get(scope(self._study, point))
        ):
            yield point, self._why(point, same, kernel)

    def _equivalents(
        self,
        trials: Sequence[Trial],
        kernel_of: Callable[[Configuration], OwnKernel | None],
    ) -> Iterator[tuple[Configuration, Configuration, OwnKernel]]:
        """Unjudged points, their equivalent measured points, and the kernel that decodes."""
        measured: dict[Configuration, Configuration] = {}
        done = set(self._baselines)
        for trial in trials:
            if trial.state is not TrialState.RUNNING:
                done.add(trial.configuration)
            if trial.state not in {TrialState.FAILED, TrialState.INACTIVE}:
                measured.setdefault(without_nccl(trial.configuration), trial.configuration)
        for point in self._space:
            if point in done:
                continue
            kernel = kernel_of(point)
            if kernel is None or not carries_decoding(self._study, point, kernel):
                continue
            plain = without_nccl(point)
            if plain in self._space or plain in self._baselines:
                measured[plain] = plain
            same = measured.setdefault(plain, point)
            if same != point:
                yield point, same, kernel

    def _why(self, point: Configuration, same: Configuration, kernel: OwnKernel) -> Failure:
        measured = dict(same.env)
        names = [name for name, value in point.env if value != measured.get(name)]
        prefills = "long prefills"
        if hidden_size(self._study.model.path) is not None:
            tokens = kernel.most_bytes // token_bytes(self._study)
            prefills = f"prefills of more than {tokens:,} tokens at once"
        return Failure(
            NCCL_UNUSED,
            "arguments",
            "configuration",
            f"not launched: SGLang's all-reduce kernel {kernel.name} handles decoding (up to "
            f"{kernel.most_bytes // MIB} MiB; {kernel.seen}), so {' and '.join(names)} "
            f"{'has' if len(names) == 1 else 'have'} no effect on it. NCCL only gathers logits and "
            f"handles {prefills}; with `--disable-custom-all-reduce` NCCL handles decoding, too. "
            f"This configuration decodes like `{describe(same)}`.",
        )


def _nvlink(machine: Machine | None) -> bool:
    return machine is not None and joined_by_nvlink(machine.topology or "")
