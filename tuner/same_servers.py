"""Points that are the same server as another one, as soon as a launch has shown it.

Where SGLang's own all-reduce kernel carries decoding, NCCL's variables change nothing of it: of all
points that differ in nothing else one is measured, the one that sets none of them where it can be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure, LaunchState, TrialState
from runners.all_reduce_log import own_kernel_in
from search_spaces.own_all_reduce import (
    MIB,
    carries_decoding,
    hidden_size,
    may_have_own_kernel,
    nccl_knobs,
    scope,
    token_bytes,
    without_nccl,
)
from tuner.words import describe

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from results.records import Launch, Trial
    from search_spaces import Space, Study
    from search_spaces.configuration import Configuration
    from search_spaces.own_all_reduce import OwnKernel

NCCL_UNUSED = "nccl_unused"
"""Kind of the failure of a point that was not launched since NCCL has no part in its decoding."""


class SameServers:
    """Knows which points need no launch. Holds nothing that the launches' logs do not tell.

    Args:
        study: The study.
        space: Its points.
        baselines: By name; they are measured whatever they are.
    """

    def __init__(self, study: Study, space: Space, baselines: Mapping[str, Configuration]) -> None:
        self._study = study
        self._space = space
        self._baselines = frozenset(baselines.values())
        self._varies = bool(nccl_knobs(study))
        self._kernels: dict[Hashable, OwnKernel | None] = {}
        self._read: set[int] = set()

    def learn(self, launches: Iterable[Launch]) -> bool:
        """Reads the logs of launches that have ended; returns whether a kernel was found."""
        found = False
        for launch in launches:
            if not self._varies or launch.id in self._read or launch.state is LaunchState.RUNNING:
                continue
            self._read.add(launch.id)
            where = scope(self._study, launch.intent.configuration)
            if self._kernels.get(where) is not None:
                continue
            kernel = own_kernel_in(launch.intent.log, dict(launch.effective_environment))
            if kernel is not None:
                self._kernels[where] = replace(kernel, seen=f"log of launch {launch.id}")
                found = True
            elif launch.ready_s is not None:
                self._kernels[where] = None
        return found

    def before(self, configuration: Configuration, judged: Collection[str]) -> Configuration:
        """What to launch first, where it is not known yet whether NCCL has a part in decoding.

        Args:
            configuration: What a planner chose.
            judged: Keys of what was judged.
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
        """Points that are another one's server, and why; those that were judged are left out."""
        measured: dict[Configuration, Configuration] = {}
        done: set[Configuration] = set()
        for trial in trials:
            if trial.state is not TrialState.RUNNING:
                done.add(trial.configuration)
            if trial.state not in {TrialState.FAILED, TrialState.INACTIVE}:
                measured.setdefault(without_nccl(trial.configuration), trial.configuration)
        for point in self._space:
            if point in done or point in self._baselines:
                continue
            kernel = self._kernels.get(scope(self._study, point))
            if kernel is None or not carries_decoding(self._study, point, kernel):
                continue
            plain = without_nccl(point)
            if plain in self._space or plain in self._baselines:
                measured[plain] = plain
            same = measured.setdefault(plain, point)
            if same != point:
                yield point, self._why(point, same, kernel)

    def _why(self, point: Configuration, same: Configuration, kernel: OwnKernel) -> Failure:
        theirs = dict(same.env)
        names = [name for name, value in point.env if value != theirs.get(name)]
        prefills = "long prefills"
        if hidden_size(self._study.model.path) is not None:
            tokens = kernel.most_bytes // token_bytes(self._study)
            prefills = f"prefills of more than {tokens:,} tokens at once"
        return Failure(
            NCCL_UNUSED,
            "arguments",
            "configuration",
            f"not launched: SGLang's own all-reduce kernel carries decoding ({kernel.name}, up to "
            f"{kernel.most_bytes // MIB} MiB; {kernel.seen}), and {' and '.join(names)} "
            f"{'does' if len(names) == 1 else 'do'} nothing there. In decoding it is the server of "
            f"`{describe(same)}`. NCCL is left with the gathering of logits and with "
            f"{prefills}; `--disable-custom-all-reduce` gives it decoding.",
        )
