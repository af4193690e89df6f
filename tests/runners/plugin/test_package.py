"""How the plugin reaches a server, and where it is not available. Without SGLang."""

from __future__ import annotations

import os
import sys

import pytest

from runners.base import EnvironmentUnusableError
from runners.plugin import package as plugin
from runners.plugin.package import FOLDER, Plugin, prepared_settings, started_at, without_plugin
from runners.plugin.protocol import NAME
from runners.process.environment import CommandPrefix, LocalEnvironment
from search_spaces.configuration import Configuration, Setting, Speculation

from ..conftest import eagle3

pytestmark = pytest.mark.slow


@pytest.fixture
def at(with_sglang, monkeypatch):
    """The plugin with an SGLang of some version."""

    def make(version="0.5.23", *, flags=None, env=None, **variables):
        with_sglang(version)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return Plugin(LocalEnvironment(sys.executable), flags or {}, env or {})

    return make


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_verified_versions_have_all_capabilities(at, version):
    found = at(version).capabilities
    assert (found.no_switch, found.no_clock) == (None, None)
    assert "enable_dp_attention" in found.never
    assert "dp_size" in found.one


def test_unverified_version_has_no_capabilities(at):
    found = at("0.5.18").capabilities
    assert "verified with SGLang 0.5.17, 0.5.23 only; this is 0.5.18" in found.no_switch
    assert found.no_clock == found.no_switch


def test_invisible_folder_names_the_mount(at, monkeypatch):
    there = at()
    monkeypatch.setattr(plugin, "FOLDER", FOLDER / "not-there")
    assert f"-v {FOLDER}/not-there:{FOLDER}/not-there:ro" in there.capabilities.no_switch
    assert not there.can_switch(eagle3(1), eagle3(2))


@pytest.mark.parametrize("python", ["/no/such/python", "false"])
def test_broken_interpreter_has_no_capabilities(python):
    found = Plugin(LocalEnvironment(python), {}, {})
    assert python in found.capabilities.no_switch
    assert not found.can_switch(eagle3(1), eagle3(2))
    assert found.can_switch(eagle3(2), eagle3(2))


def chain(algorithm, steps, **changes):
    return Configuration.of(Speculation(algorithm, steps, 1, steps + 1), draft_tp=1, **changes)


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"])
def test_chains_share_a_launch(at, algorithm):
    assert at().can_switch(chain(algorithm, 1), chain(algorithm, 5))


@pytest.mark.parametrize(("steps", "tokens"), [(2, 6), (3, 4), (3, 8), (1, 3)])
def test_trees_of_the_same_topk_share_a_launch(at, steps, tokens):
    assert at().can_switch(eagle3(2, 2, 4), eagle3(steps, 2, tokens))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (eagle3(2), eagle3(2, 2, 4)),
        (eagle3(2, 2, 4), eagle3(2, 3, 4)),
        (eagle3(2, 2, 4), eagle3(3, 2, 4, NCCL_PROTO="LL128")),
        (eagle3(2, 2, 4), eagle3(5, 2, 4)),  # no path of 5 steps fits
        (eagle3(2), eagle3(3, NCCL_PROTO="LL128")),
        (eagle3(2), Configuration()),
        (chain("EAGLE", 2), chain("EAGLE3", 3)),
        (
            Configuration.of(Speculation("NGRAM", None, None, 8)),
            Configuration.of(Speculation("NGRAM", None, None, 9)),
        ),
    ],
)
def test_other_pairs_share_no_launch(at, a, b):
    there = at()
    assert not there.can_switch(a, b)
    assert not there.can_switch(b, a)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"enable-dp-attention": True}, "--enable-dp-attention is set"),
        ({"dp-size": 2}, "--dp-size is 2"),
        ({"pp-size": "2"}, "--pp-size is 2"),
        ({"speculative-adaptive": True}, "--speculative-adaptive is set"),
        ({"device": "cpu"}, "on a CPU it needs --disable-cuda-graph"),
        ({"device": "cpu", "disable-cuda-graph": True}, None),
        ({"dp-size": 1, "enable-two-batch-overlap": False}, None),
    ],
)
def test_flags_that_exclude_switching(at, flags, said):
    there = at(flags=flags)
    assert there.no_switch(eagle3(2)) == said
    assert there.can_switch(eagle3(2), eagle3(3)) is (said is None)


def test_flags_of_a_configuration_can_exclude_switching(at):
    there = at()
    assert there.no_switch(chain("EAGLE3", 2, flags={"pp-size": 2})) == "--pp-size is 2"
    assert there.no_switch(chain("EAGLE3", 2, flags={"pp-size": None})) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"pp-size": "2"}, "--pp-size is 2"),
        ({"device": "npu"}, "--device is npu"),
        ({"pp-size": 1, "device": "cuda"}, None),
        ({"device": "cpu"}, None),
    ],
)
def test_flags_that_exclude_the_clock(at, flags, said):
    """The launch has no clock if the plugin would refuse; other configurations have one."""
    there = at()
    assert there.no_clock(Configuration.of(flags=flags)) == said
    assert there.no_clock(Configuration()) is None
    of_the_study = Plugin(LocalEnvironment(sys.executable), flags, {})
    assert of_the_study.no_clock(eagle3(2)) == said


def test_unreachable_environment_is_asked_again_after_a_minute(at, monkeypatch):
    there, now = at(), [0.0]
    monkeypatch.setattr(plugin.time, "monotonic", lambda: now[0])

    def unusable(*_, **__):
        raise EnvironmentUnusableError("the network is away")

    with monkeypatch.context() as away:
        away.setattr(LocalEnvironment, "run", unusable)
        assert there.capabilities.no_switch == "the network is away"
    assert there.capabilities.no_clock == "the network is away", (
        "not asked again at once, because an answer may take long"
    )
    now[0] += 61.0
    assert there.capabilities.no_switch is None
    monkeypatch.setattr(LocalEnvironment, "run", unusable)
    now[0] += 1e6
    assert there.capabilities.no_switch is None, "an answer is kept"


def test_variables_of_a_launch(at, tmp_path):
    there = at()
    path = f"{FOLDER}{os.pathsep}{tmp_path}"
    asked = there.variables(tuple(map(Setting, (1, 2, 5))), eagle3(5), clock=True)
    assert asked == {
        "PYTHONPATH": path,
        "TUNER_SWITCHABLE_STEPS": "1,2,5",
        "TUNER_CYCLE_CLOCK": "1",
    }
    clock = there.variables((), eagle3(5), clock=True)
    assert clock == asked | {"TUNER_SWITCHABLE_STEPS": None}
    nothing = there.variables((), eagle3(5), clock=False)
    assert nothing == {"TUNER_SWITCHABLE_STEPS": None, "TUNER_CYCLE_CLOCK": None}


def test_existing_variables_are_extended(at):
    there = at(SGLANG_PLUGINS="mine", env={"PYTHONPATH": "/studys"})
    asked = there.variables((), eagle3(5), clock=True)
    assert asked["PYTHONPATH"] == f"{FOLDER}:/studys"
    assert asked["SGLANG_PLUGINS"] == f"mine,{NAME}"
    own = there.variables((), eagle3(5, PYTHONPATH="/own"), clock=True)
    assert own["PYTHONPATH"] == f"{FOLDER}:/own"


def test_environment_without_plugin_restores_the_original():
    environ = {"PYTHONPATH": f"{FOLDER}:/studys", "SGLANG_PLUGINS": f"mine,{NAME}", "A": "1"}
    assert without_plugin(environ) == {
        "PYTHONPATH": "/studys",
        "SGLANG_PLUGINS": "mine",
        "A": "1",
    }
    assert without_plugin({"PYTHONPATH": str(FOLDER)}) == {}
    assert without_plugin({"PYTHONPATH": "/studys"}) == {"PYTHONPATH": "/studys"}


def test_command_prefix_keeps_its_python_path(tmp_path, with_sglang, monkeypatch):
    with_sglang("0.5.23")
    monkeypatch.delenv("PYTHONPATH")
    prefix = CommandPrefix(("env", f"PYTHONPATH={tmp_path}"), sys.executable)
    there = Plugin(prefix, {}, {})
    assert there.capabilities.no_switch is None
    asked = there.variables((Setting(1), Setting(2)), eagle3(2), clock=True)
    assert asked["PYTHONPATH"] == f"{FOLDER}:{tmp_path}"


def test_shared_launch_starts_at_the_most_steps(intent):
    several = intent(eagle3(1), 2, 5, 1)
    assert prepared_settings(several) == (Setting(1), Setting(2), Setting(5))
    assert started_at(several) == eagle3(5)
    for one in (intent(eagle3(3)), intent(eagle3(3), 3)):
        assert prepared_settings(one) == ()
        assert started_at(one) == eagle3(3)


@pytest.mark.parametrize(
    ("asked", "prepared"),
    [
        (((2, 4), (3, 6), (1, 3)), "1/3,2/4,3/6"),
        # None is the largest in both, so one more is prepared and not measured.
        (((2, 6), (3, 4)), "2/6,3,3/6"),
    ],
)
def test_shared_launch_of_trees_starts_at_the_most_steps_and_tokens(at, intent, asked, prepared):
    several = intent(eagle3(*asked[0][:1], 2, asked[0][1]), *(Setting(*one) for one in asked))
    settings = prepared_settings(several)
    assert at().variables(settings, eagle3(2), clock=True)["TUNER_SWITCHABLE_STEPS"] == prepared
    assert started_at(several) == eagle3(3, 2, 6)
