"""Observation of one server, and comparison of two observations."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import log_lines, meanings, metrics_page, server_info
from .comparison import compare
from .exchange import Exchange, ask, post
from .meanings import Depth, Evidence, generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .exchange import Answer

    Change = Callable[[str, Answer], Answer]

_RID = "the long one"
_LONG = 1500
_ATTEMPTS = 10
_BUSY = (
    Exchange("busy flush", "POST", "/flush_cache"),
    post("busy abort", "/abort_request", {"rid": _RID}),
)
_ABORTED = generation(50, _LONG, rid=_RID, stream=True)


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of one server.

    Attributes:
        answers: Exchanges and answers by name.
        evidence: Evidence for the rules of the numbers.
        log: The log since the start.
    """

    answers: dict[str, tuple[Exchange, Answer]]
    evidence: Evidence
    log: str

    def changed(self, change: Change) -> Observation:
        """Return the observation with every answer changed."""
        evidence = self.evidence
        return Observation(
            {
                name: (exchange, change(exchange.path, answer))
                for name, (exchange, answer) in self.answers.items()
            },
            replace(
                evidence,
                answers=tuple(change("/generate", one) for one in evidence.answers),
                infos=tuple(change("/server_info", one) for one in evidence.infos),
                pages=tuple(change("/metrics", one) for one in evidence.pages),
                flushes=tuple(change("/flush_cache", one) for one in evidence.flushes),
            ),
            self.log,
        )

    def with_log(self, change: Callable[[str], str]) -> Observation:
        """Return the observation with a changed log."""
        evidence = replace(self.evidence, log=change(self.evidence.log))
        return replace(self, log=change(self.log), evidence=evidence)


def observe(
    url: str, read_log: Callable[[], str], depth: Depth | None, exchanges: Sequence[Exchange]
) -> Observation:
    """Observe an idle server without other clients."""
    evidence = meanings.gather(url, read_log, depth)
    answers = {exchange.name: (exchange, ask(url, exchange)) for exchange in exchanges}
    answers |= _while_busy(url)
    return Observation(answers, evidence, read_log())


def _while_busy(url: str) -> dict[str, tuple[Exchange, Answer]]:
    """Return the answers while a request runs, and the answer of the aborted request."""
    for _ in range(_ATTEMPTS):
        begun = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(ask, url, _ABORTED, begun=begun)
            while not (long.done() or begun.wait(0.02)):
                pass
            busy = {one.name: (one, ask(url, one)) for one in _BUSY}
        last = long.result().events()[-1]
        if last["meta_info"]["finish_reason"]["type"] == "abort":
            return busy | {"aborted": (_ABORTED, long.result())}
    raise AssertionError(f"{url}: a long answer was never caught under way")


def breaches(real: Observation, simulated: Observation) -> list[str]:
    """Describe the differences of the servers; an empty list means equal."""
    found = [f"the real one: {what}" for what in meanings.broken(real.evidence)]
    found += [f"simulated: {what}" for what in meanings.broken(simulated.evidence)]
    for name, (exchange, answer) in real.answers.items():
        found += [
            f"{name}: {what}" for what in compare(exchange, answer, simulated.answers[name][1])
        ]
    return [*found, *_pages(real, simulated), *log_lines.compare(real.log, simulated.log)]


def _pages(real: Observation, simulated: Observation) -> Iterator[str]:
    for when, theirs, ours in zip(
        ("before", "after", "after a flush"),
        real.evidence.infos,
        simulated.evidence.infos,
        strict=True,
    ):
        for what in server_info.compare(theirs.json(), ours.json()):
            yield f"/server_info {when}: {what}"
    theirs, ours = real.evidence.pages[1].text, simulated.evidence.pages[1].text
    yield from (f"/metrics: {what}" for what in metrics_page.compare(theirs, ours))
