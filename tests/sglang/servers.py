"""Live servers: the real SGLang on the tiny models, one kind at a time, each started once.

A start takes 20 s of a quiet core, so tests of one kind share a server: they carry the marker
`kind("eagle3")`, by which `conftest.py` sorts them, and ask for `server` (or for `live(kind)`).
Whoever harms its server says `live.discard()` afterwards, and comes last of its kind (`harms`).
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
"""Of the largest window of these tests, its warm-up's among them."""

HEALTH_TIMEOUT_S = "4"
"""Until `/health` gives up its scheduler (SGLang's own: 20)."""

TOKENS = 32
"""Length of the answers under load."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of server.

    Attributes:
        speculation: What it runs.
        draft: The draft model, by its folder's name.
        env: Variables of its own.
        steps: Among which its draft steps can be switched; empty where they cannot.
        beside: The kind that its tests compare it with: one worker runs both.
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
    # A tree; the head is random, so nothing it drafts is accepted.
    "eagle3": Kind(Speculation("EAGLE3", 3, 2, 6), draft="eagle3"),
    # A chain; the draft is the target with noise, so part of what it drafts is accepted.
    "standalone": Kind(Speculation("STANDALONE", 3, 1, 4), draft="noisy"),
    # The same with states for other steps.
    "switchable": Kind(
        Speculation("STANDALONE", 5, 1, 6),
        draft="noisy",
        steps=(1, 2, 3, 5),
        beside="standalone",
    ),
    # Its scheduler is made to stand still, until `/health` says so.
    "ngram": Kind(
        Speculation("NGRAM", None, None, 8), env={"SGLANG_HEALTH_CHECK_TIMEOUT": HEALTH_TIMEOUT_S}
    ),
    "simulated_acceptance": Kind(
        Speculation("EAGLE3", 4, 1, 5), draft="eagle3", env={"SGLANG_SIMULATE_ACC_LEN": "3.3"}
    ),
}


def generation(text: str, tokens: int) -> dict[str, Any]:
    """The body of a request for exactly so many tokens."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    return {"text": text, "sampling_params": sampling}


def metric(server: LiveServer, name: str) -> float:
    """The sum of a metric's series: tokens have one for streams and one for whole answers."""
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
    """For tests that hold for several kinds: `@of_kinds("plain", "ngram") def test_it(server)`."""
    each = [pytest.param(kind, marks=pytest.mark.kind(kind)) for kind in kinds]
    return pytest.mark.parametrize("server", each, indirect=True)


THROUGHOUT = [name for name, kind in KINDS.items() if not kind.steps]
"""Those that are what they were started as to the end."""

every_kind = of_kinds(*THROUGHOUT)
speculating = of_kinds(*(kind for kind in THROUGHOUT if kind != "plain"))


_GRAPHS: dict[bool, dict[str, bool]] = {True: {"disable-cuda-graph": True}, False: {}}
"""On a CPU there are none, but SGLang tries to capture some for the states of a switch."""


# An idle scheduler polls, and would take a core from the other worker's tests.
_FLAGS = {"enable-metrics": True, "sleep-on-idle": True}


def study_of(cpu: CpuServer, kind: str) -> Study:
    """The shipped study `tiny`, at this server, with the models of `kind` and a smaller load."""
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
    """A server that our own runner started.

    Attributes:
        kind: Which of `KINDS`.
        study: The study that it was started for.
        session: The runner's session; a test that closes it must discard the server.
        command: Its command line.
        identity: Its process: port, pid, mark.
        log: Its log.
        progress: What the runner told of its start.
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
        """The process as the runner holds it: `poll()` is its exit code, once it has ended."""
        return self.session._process

    def get(self, path: str, *, timeout: float = 120) -> httpx.Response:
        """Asks it; its neighbours may have the cores, so time-outs are long."""
        return httpx.get(self.url + path, timeout=timeout, trust_env=False)

    def post(self, path: str, body: Any = None, *, timeout: float = 120) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=timeout, trust_env=False)

    def generate(self, text: str, tokens: int, **more: Any) -> dict[str, Any]:
        """One answer of exactly so many tokens, in one piece."""
        answer = self.post("/generate", generation(text, tokens) | more)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def info(self) -> dict[str, Any]:
        """`/server_info`."""
        return self.get("/server_info").json()

    def flush(self) -> None:
        """Waits until it idles, and empties its cache."""
        deadline = time.monotonic() + 60
        while self.post("/flush_cache").status_code != httpx.codes.OK:
            assert time.monotonic() < deadline, "it does not come to rest"
            time.sleep(0.1)


class Live:
    """Gives a server of a kind; at most one runs at any time."""

    def __init__(self, cpu: CpuServer, folder: Path) -> None:
        self._cpu = cpu
        self._folder = folder
        self._running: LiveServer | None = None
        self._renderer: Renderer | None = None

    def __call__(self, kind: str) -> LiveServer:
        """The running server of this kind; started if there is none."""
        if self._running is None or self._running.kind != kind:
            self.discard()
            self._running = self._start(kind)
        return self._running

    def discard(self) -> None:
        """Ends the running server, whatever state it is in: the next one is a fresh one."""
        running, self._running = self._running, None
        if running is not None:
            running.session.close()

    def _start(self, kind: str) -> LiveServer:
        study, mark = study_of(self._cpu, kind), uuid.uuid4().hex
        log = self._folder / f"{kind}-{mark[:8]}.log"
        begun: list[tuple[ProcessIdentity, LaunchCommand]] = []
        progress: list[StartProgress] = []
        runner = SGLangRunner(study, seed=0, log_dir=self._folder)
        # All kinds have one target and one set of prompts: rendered at once, in one process.
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
    """The kind of server that a test asks for by its marker."""
    marker = item.get_closest_marker("kind")
    return None if marker is None else str(marker.args[0])


def by_kind(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests with those of one kind together, the harmful ones last; others first, as before.

    What takes minutes in one piece (`long`) is the very first, so that nobody waits for it alone.
    """
    order = {kind: place for place, kind in enumerate(KINDS, 1)}

    def place(item: pytest.Item) -> tuple[int, int]:
        kind = kind_of(item)
        if kind is None:
            return (0, int(item.get_closest_marker("long") is None))
        return (order[kind], int(item.get_closest_marker("harms") is not None))

    return sorted(items, key=place)
