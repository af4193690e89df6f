"""Sums of the cycle clock, driven by its real hooks with a simulated GPU time."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.plugin import protocol as plugin_protocol
from runners.plugin.inside_sglang.tuner_sglang_plugin import (
    CLOCK_VARIABLE,
    STEPS_VARIABLE,
    hot_switch,
    log,
    status,
)
from runners.plugin.inside_sglang.tuner_sglang_plugin.clock import (
    CudaMarks,
    CycleClock,
    Durations,
    bucket_of,
)


class Stream:
    """A GPU that passes recorded events when the test advances it."""

    def __init__(self, monkeypatch) -> None:
        self.waiting = []
        self.made = 0
        stream = self

        class Event:
            def __init__(self, *, enable_timing) -> None:
                assert enable_timing
                stream.made += 1
                self.at = None

            def record(self) -> None:
                self.at = None
                stream.waiting.append(self)

            def query(self) -> bool:
                return self.at is not None

            def elapsed_time(self, end) -> float:
                assert self.query(), "read before it is past"
                assert end.query(), "read before it is past"
                return (end.at - self.at) * 1e3

        cuda = SimpleNamespace(Event=Event)
        torch = ModuleType("torch")
        torch.cuda = cuda
        monkeypatch.setitem(sys.modules, "torch", torch)

    def reach(self, *instants: float) -> None:
        """Pass this many events."""
        for at in instants:
            self.waiting.pop(0).at = at


class Mode:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def is_idle(self) -> bool:
        return self.kind == "idle"

    def is_decode(self) -> bool:
        return self.kind == "decode"

    def is_target_verify(self) -> bool:
        return self.kind == "verify"


class Server:
    """Calls the hooks in the order of SGLang's workers."""

    def __init__(self, stream: Stream, *, graphs: bool = True) -> None:
        self.clock = CycleClock()
        self.clock._marks = CudaMarks()
        self.clock._runs = True
        self.stream = stream
        self.graphs = graphs
        self.idle = False

    def forward(self, kind, size=1, *, draft=False, graph=True):
        runner = SimpleNamespace(is_draft_worker=draft)
        batch = SimpleNamespace(forward_mode=Mode(kind), batch_size=size)
        return self.clock.forward(
            lambda *_, **__: SimpleNamespace(can_run_graph=graph), runner, batch
        )

    def draft(self, size=1, kind="decode"):
        worker = SimpleNamespace(cuda_graph_runner=object() if self.graphs else None)
        seq_lens = SimpleNamespace(shape=(size,))
        batch = SimpleNamespace(forward_mode=Mode(kind), seq_lens=seq_lens)
        return self.clock.draft(self._part, worker, batch)

    def draft_extend(self):
        return self.clock.draft_extend(self._part, object(), None, None, kv_loc_plan=None)

    def cycle(self, size=1):
        """Draft, verify, draft extend: five events."""
        self.draft(size)
        self.forward("verify", size)
        self.draft_extend()

    def _part(self, *_, **__):
        if not self.graphs:
            self.forward("decode", draft=True)
        return "result"

    def status(self):
        return self.clock.status(SimpleNamespace(is_fully_idle=lambda: self.idle))

    def sums(self):
        return self.status()["batches"]


@pytest.fixture
def stream(monkeypatch):
    return Stream(monkeypatch)


def totals(sums):
    return {part: (one["count"], round(one["total_s"], 9)) for part, one in sums.items()}


def test_cycle_is_the_sum_of_its_parts(stream):
    """The next cycle ends a cycle. `rest` is the time between the parts and after the last part."""
    server = Server(stream)
    server.cycle()
    server.cycle()
    stream.reach(0.000, 0.002, 0.009, 0.009, 0.010)
    stream.reach(0.012, 0.013, 0.019, 0.020, 0.021)
    assert totals(server.sums()["1"]) == {
        "draft": (1, 0.002),
        "verify": (1, 0.007),
        "draft_extend": (1, 0.001),
        "cycle": (1, 0.012),
        "rest": (1, 0.002),
    }
    server.idle = True
    assert totals(server.sums()["1"]) == {
        "draft": (2, 0.003),
        "verify": (2, 0.013),
        "draft_extend": (2, 0.002),
        "cycle": (1, 0.012),
        "rest": (1, 0.002),
    }


def test_events_are_read_after_the_gpu_passed_them(stream):
    server = Server(stream)
    server.cycle()
    server.cycle()
    assert server.sums() == {}
    stream.reach(0.0, 0.1, 0.2, 0.3, 0.4)
    assert server.sums() == {}, "its end is not past"
    stream.reach(0.6)
    assert server.sums()["1"]["cycle"]["count"] == 1


def test_events_are_reused(stream):
    server = Server(stream)
    at = 0.0
    for _ in range(200):
        server.cycle()
        stream.reach(*(at + 0.001 * place for place in range(5)))
        at += 0.01
    assert stream.made <= 12
    spare = server.clock._marks._spare
    assert len(spare) == len(set(map(id, spare))), "none is given back twice"
    assert server.sums()["1"]["cycle"]["count"] == 199
    assert totals(server.sums()["1"])["cycle"] == (199, 1.99)


def test_lagging_gpu_is_read_later(stream):
    server = Server(stream)
    for _ in range(50):
        server.cycle()
    stream.reach(*(0.001 * place for place in range(250)))
    for _ in range(20):
        server.cycle()
    assert len(server.clock._unread) <= 20 + 1


def test_without_speculation_verify_is_the_decode_forward(stream):
    server = Server(stream)
    server.forward("decode", size=3)
    server.forward("decode", size=3)
    server.forward("decode", size=2)
    stream.reach(0.0, 0.004, 0.005, 0.009, 0.010, 0.013)
    server.idle = True
    sums = server.sums()
    assert totals(sums["3"]) == {"verify": (2, 0.008), "cycle": (2, 0.010), "rest": (2, 0.002)}
    assert totals(sums["2"]) == {"verify": (1, 0.003)}


@pytest.mark.parametrize("between", ["extend", "idle"])
def test_other_forwards_between_cycles_end_no_cycle(stream, between):
    server = Server(stream)
    server.cycle()
    server.forward(between)
    server.cycle()
    stream.reach(*(0.001 * place for place in range(10)))
    server.idle = True
    sums = server.sums()["1"]
    assert sums["verify"]["count"] == 2
    assert "cycle" not in sums
    assert "rest" not in sums


def test_draft_of_an_idle_rank_is_no_cycle(stream):
    server = Server(stream)
    assert server.draft(kind="idle") == "result"
    assert server.sums() == {}


def test_cycle_counts_for_its_first_batch_size(stream):
    server = Server(stream)
    server.cycle(size=4)
    server.cycle(size=3)
    stream.reach(*(0.001 * place for place in range(10)))
    server.idle = True
    sums = server.sums()
    assert sums["4"]["cycle"]["count"] == 1
    assert "cycle" not in sums["3"]
    assert sums["3"]["verify"]["count"] == 1


@pytest.mark.parametrize("graphs", [True, False])
def test_graphs_and_eager_runs_are_counted_apart(stream, graphs):
    """Only an eager run calls the draft's forward."""
    server = Server(stream, graphs=graphs)
    server.draft()
    server.forward("verify", graph=graphs)
    server.draft_extend()
    stream.reach(*(0.001 * place for place in range(5)))
    server.idle = True
    counted = {part: one["graphs"] for part, one in server.sums()["1"].items()}
    assert counted == {"draft": int(graphs), "verify": int(graphs), "draft_extend": int(graphs)}


def test_nothing_is_recorded_before_the_server_is_ready(stream):
    server = Server(stream)
    server.clock._runs = False
    server.cycle()
    server.forward("decode")
    assert stream.made == 0
    assert server.sums() == {}


def test_clock_stops_and_resumes(stream):
    """Time while stopped does not count, and a stopped cycle has no end."""
    server = Server(stream)
    server.cycle()
    assert server.clock.change(None, {"tuner_clock": 0}) is None
    server.cycle()
    assert server.clock.change(None, {"tuner_clock": 1}) is None
    server.cycle()
    server.cycle()
    stream.reach(*(0.001 * place for place in range(15)))
    server.idle = True
    sums = server.sums()["1"]
    assert (sums["verify"]["count"], sums["cycle"]["count"]) == (3, 1)


@pytest.mark.parametrize("asked", [{"tuner_clock": 2}, {"tuner_clock": 0, "other": 1}])
def test_unknown_request_is_refused(stream, asked):
    server = Server(stream)
    assert server.clock.change(None, dict(asked)) is not None
    server.cycle()
    assert stream.made == 5


def test_results_pass_through(stream):
    server = Server(stream)
    assert server.draft() == "result"
    assert server.draft_extend() == "result"
    assert server.forward("verify").can_run_graph is True
    assert server.forward("extend", graph=False).can_run_graph is False


@pytest.mark.parametrize("broken", ["record", "query", "elapsed_time"])
def test_error_stops_only_the_clock(stream, capsys, monkeypatch, broken):
    server = Server(stream)
    server.cycle()

    def fails(*_):
        raise RuntimeError("CUDA error: no such event\nand more")

    stream.reach(*(0.001 * place for place in range(5)))
    monkeypatch.setattr(sys.modules["torch"].cuda.Event, broken, fails)
    for _ in range(3):
        assert server.draft() == "result"
        assert server.forward("verify").can_run_graph is True
        assert server.draft_extend() == "result"
        stream.reach(*[0.1] * len(stream.waiting))
    server.idle = True
    reason = "RuntimeError: CUDA error: no such event"
    assert server.status() | {"batches": None} == {
        "running": False,
        "failed": reason,
        "parts": ["verify"],
        "batches": None,
    }
    said = f"tuner_sglang_plugin: the clock failed and stops for good: {reason}\n"
    assert capsys.readouterr().err == said
    assert reason in server.clock.change(None, {"tuner_clock": 1})
    assert not server.clock._unread


@pytest.mark.parametrize("hook", ["draft", "forward", "draft_extend"])
def test_server_exception_passes_through(stream, hook):
    """An exception of the server must reach the server."""
    server = Server(stream)
    if hook == "draft_extend":
        server.draft()
        server.forward("verify")

    def dies(*_, **__):
        raise ValueError(hook)

    worker = SimpleNamespace(cuda_graph_runner=None, is_draft_worker=False)
    batch = SimpleNamespace(
        forward_mode=Mode("decode"), batch_size=1, seq_lens=SimpleNamespace(shape=(1,))
    )
    with pytest.raises(ValueError, match=hook):
        getattr(server.clock, hook)(dies, worker, batch)
    assert server.status()["failed"] is None


def test_unreadable_batch_does_not_reach_the_server(stream, capsys):
    server = Server(stream)
    batch = SimpleNamespace(forward_mode=Mode("decode"))
    assert server.clock.draft(lambda *_: "drafted", None, batch) == "drafted"
    assert "AttributeError" in capsys.readouterr().err
    assert server.status()["failed"].startswith("AttributeError")


@given(st.floats(min_value=1e-6, max_value=1e3))
def test_duration_is_inside_its_bucket(seconds):
    bucket = bucket_of(seconds)
    slack = 1 + 1e-9  # a bound of a bucket belongs to either, by rounding
    assert 1e-6 * 1.02**bucket <= seconds * slack
    assert seconds <= 1e-6 * 1.02 ** (bucket + 1) * slack


@given(st.lists(st.floats(min_value=0, max_value=10), min_size=1, max_size=50))
def test_sums_add_up(seconds):
    sums = Durations()
    for one in seconds:
        sums.add(one, graph=one > 1)
    shown = sums.to_dict()
    assert shown["count"] == len(seconds) == sum(shown["buckets"].values())
    assert math.isclose(shown["total_s"], sum(seconds))
    assert shown["graphs"] == sum(one > 1 for one in seconds)


@given(st.text(min_size=1, max_size=40))
def test_tuner_and_plugin_have_the_same_protocol(mark):
    """The plugin cannot import the tuner, so both define the protocol."""
    assert status.token_of(mark) == plugin_protocol.token_of(mark)
    assert status.PROTOCOL == plugin_protocol.PROTOCOL
    assert log.NAME == plugin_protocol.NAME
    assert (STEPS_VARIABLE, CLOCK_VARIABLE) == (
        plugin_protocol.STEPS_VARIABLE,
        plugin_protocol.CLOCK_VARIABLE,
    )
    assert hot_switch.STEPS_KEY == plugin_protocol.STEPS_ARGUMENT
    assert status.TOKEN_KEY == plugin_protocol.TOKEN_ARGUMENT
    assert hot_switch.BUSY == plugin_protocol.BUSY
