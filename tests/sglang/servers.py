"""Live servers: the real SGLang on the tiny models, one kind at a time, each started once.

A start takes 20 s of a quiet core, so tests of one kind share a server: they have the marker
`kind("eagle3")`, by which `conftest.py` sorts them, and request `server` (or `live(kind)`). Tests
that harm their server have the marker `harms`, run last of their kind, and call `live.discard()`.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from results.records import LaunchIntent
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration, Setting, Speculation
from search_spaces.study_file.load import load_study
from search_spaces.study_file.study import OutputTokensSpec, Study

if TYPE_CHECKING:
    from pathlib import Path

    from results.records import ProcessIdentity
    from runners.base import LaunchCommand, Session, StartProgress
    from runners.load.prompts.rendering import Renderer
    from runners.process.processes import ServerProcess
    from runners.sglang_cpu import CpuServer

VERSION = "0.5.23"

MOST_PROMPTS = 64 + 4
"""Prompts of the largest window of these tests, with its warm-up."""

HEALTH_TIMEOUT_S = "4"
"""Seconds until `/health` reports a silent scheduler (SGLang's default: 20)."""

TOKENS = 32
"""Length of the answers under load."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of server.

    Attributes:
        speculation: Its speculation.
        draft: Folder name of the draft model.
        env: Additional variables.
        steps: Switchable draft steps; empty if not switched.
        beside: Kind with which its tests compare it: the same test worker runs both.
    """

    speculation: Speculation = field(default_factory=Speculation)
    draft: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    steps: tuple[int, ...] = ()
    beside: str | None = None

    @property
    def configuration(self) -> Configuration:
        draft_tp = 1 if self.draft else None
        return Configuration.of(self.speculation, draft_tp=draft_tp)


KINDS = {
    "plain": Kind(),
    # A tree; the head is random, so no draft is accepted.
    "eagle3": Kind(Speculation("EAGLE3", 3, 2, 6), draft="eagle3"),
    # A chain; the draft is the target with noise, so some drafts are accepted.
    "standalone": Kind(Speculation("STANDALONE", 3, 1, 4), draft="noisy"),
    # The same with states for other steps.
    "switchable": Kind(
        Speculation("STANDALONE", 5, 1, 6),
        draft="noisy",
        steps=(1, 2, 3, 5),
        beside="standalone",
    ),
    # A test suspends its scheduler until `/health` reports it.
    "ngram": Kind(
        Speculation("NGRAM", None, None, 8), env={"SGLANG_HEALTH_CHECK_TIMEOUT": HEALTH_TIMEOUT_S}
    ),
    "simulated_acceptance": Kind(
        Speculation("EAGLE3", 4, 1, 5), draft="eagle3", env={"SGLANG_SIMULATE_ACC_LEN": "3.3"}
    ),
}


def generation(text: str, tokens: int) -> dict[str, Any]:
    """Body of a request for exactly this many tokens."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    return {"text": text, "sampling_params": sampling}


def metric(server: LiveServer, name: str) -> float:
    """Sum of a metric's series: tokens have one for streams and one for whole answers."""
    lines = re.findall(
        rf"^sglang:{name}(?:{{.*}})? (\S+)$", server.get("/metrics").text, re.MULTILINE
    )
    return sum(map(float, lines))


def wait_until_it_runs(server: LiveServer) -> None:
    deadline = time.monotonic() + 120
    while metric(server, "num_running_reqs") == 0:
        assert time.monotonic() < deadline, "the request does not run"
        time.sleep(0.05)


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    """Run a test on several kinds: `@of_kinds("plain", "ngram") def test_flush(server)`."""
    each = [pytest.param(kind, marks=pytest.mark.kind(kind)) for kind in kinds]
    return pytest.mark.parametrize("server", each, indirect=True)


THROUGHOUT = [name for name, kind in KINDS.items() if not kind.steps]
"""Kinds that keep the settings of their start."""

every_kind = of_kinds(*THROUGHOUT)
speculating = of_kinds(*(kind for kind in THROUGHOUT if kind != "plain"))


_GRAPHS: dict[bool, dict[str, bool]] = {True: {"disable-cuda-graph": True}, False: {}}
"""A CPU has none, but SGLang would try to capture some for the switchable states."""


# An idle scheduler would poll and take a core from the other worker's tests.
_FLAGS = {"enable-metrics": True, "sleep-on-idle": True}


def study_of(cpu: CpuServer, kind: str) -> Study:
    """The shipped study `tiny` for this server, with the models of `kind` and a smaller load."""
    study, own = load_study("tiny"), KINDS[kind]
    draft = str(cpu.models / own.draft) if own.draft else None
    model = {"path": str(cpu.models / "tiny"), "draft": draft}
    server = {
        "python": str(cpu.python),
        "flags": study.server.flags | _FLAGS | _GRAPHS[bool(own.steps)],
        "env": study.server.env | own.env,
    }
    return study.model_copy(
        update={
            "model": study.model.model_copy(update=model),
            "server": study.server.model_copy(update=server),
            "workload": study.workload.model_copy(
                update={"output_tokens": OutputTokensSpec(mean=TOKENS, spread=0.0)}
            ),
        }
    )


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server that the tuner's runner started.

    Attributes:
        kind: Key in `KINDS`.
        study: Study of the launch.
        session: The runner's session; a test that closes it must discard the server.
        command: Command line.
        identity: Process: port, pid, mark.
        log: Log file.
        progress: Progress reports of the start.
    """

    kind: str
    study: Study
    session: Session
    command: LaunchCommand
    identity: ProcessIdentity
    log: Path
    progress: tuple[StartProgress, ...]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.identity.port}"

    @property
    def port(self) -> int:
        return self.identity.port

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def python(self) -> str:
        return self.command.argv[0]

    @property
    def speculation(self) -> Speculation:
        return KINDS[self.kind].speculation

    @property
    def process(self) -> ServerProcess:
        """The runner's process object: `poll()` is the exit code after its end."""
        return self.session._process

    def get(self, path: str, *, timeout: float = 120) -> httpx.Response:
        """GET; timeouts are long because other tests share the cores."""
        return httpx.get(self.url + path, timeout=timeout, trust_env=False)

    def post(self, path: str, body: Any = None, *, timeout: float = 120) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=timeout, trust_env=False)

    def generate(self, text: str, tokens: int, **more: Any) -> dict[str, Any]:
        """One answer of exactly this many tokens, without streaming."""
        answer = self.post("/generate", generation(text, tokens) | more)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def info(self) -> dict[str, Any]:
        """`/server_info`."""
        return self.get("/server_info").json()

    def flush(self) -> None:
        """Wait until the server idles, and empty its cache."""
        deadline = time.monotonic() + 60
        while self.post("/flush_cache").status_code != httpx.codes.OK:
            assert time.monotonic() < deadline, "the server does not become idle"
            time.sleep(0.1)


class Live:
    """Servers by kind; at most one runs at a time."""

    def __init__(self, cpu: CpuServer, folder: Path) -> None:
        self._cpu = cpu
        self._folder = folder
        self._running: LiveServer | None = None
        self._renderer: Renderer | None = None

    def __call__(self, kind: str) -> LiveServer:
        """Server of this kind; start it if needed."""
        if self._running is None or self._running.kind != kind:
            self.discard()
            self._running = self._start(kind)
        return self._running

    def discard(self) -> None:
        """End the running server, whatever its state."""
        running, self._running = self._running, None
        if running is not None:
            running.session.close()

    def _start(self, kind: str) -> LiveServer:
        study, mark = study_of(self._cpu, kind), uuid.uuid4().hex
        log = self._folder / f"{kind}-{mark[:8]}.log"
        begun: list[tuple[ProcessIdentity, LaunchCommand]] = []
        progress: list[StartProgress] = []
        runner = SGLangRunner(study, seed=0, log_dir=self._folder)
        # All kinds have the same target and prompts, so one process renders them once.
        if self._renderer is None:
            self._renderer = runner.renderer()
            self._renderer.render(runner.prompts.select(MOST_PROMPTS, 0))
        runner._renderer = self._renderer
        settings = tuple(map(Setting, KINDS[kind].steps))
        session = runner.start(
            LaunchIntent(KINDS[kind].configuration, settings, mark, str(log)),
            lambda process, command: begun.append((process, command)),
            progress.append,
        )
        ((identity, command),) = begun
        return LiveServer(kind, study, session, command, identity, log, tuple(progress))


def kind_of(item: pytest.Item) -> str | None:
    """Kind of server in a test's marker."""
    marker = item.get_closest_marker("kind")
    return None if marker is None else str(marker.args[0])


def by_kind(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests: those without a kind first, then kind by kind, the harmful ones last.

    A test of minutes (`long`) is the very first, so that no worker waits for it alone.
    """
    order = {kind: place for place, kind in enumerate(KINDS, 1)}

    def place(item: pytest.Item) -> tuple[int, int]:
        kind = kind_of(item)
        if kind is None:
            return (0, int(item.get_closest_marker("long") is None))
        return (order[kind], int(item.get_closest_marker("harms") is not None))

    return sorted(items, key=place)
