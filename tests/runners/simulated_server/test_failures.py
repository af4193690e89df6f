"""Starts that fail, and servers that end, as SGLang's do."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest


def refusal(*flags, env=None):
    command = [sys.executable, "-m", "runners.simulated_server", *flags]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | (env or {}),
    )
    return done.returncode, done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "last_line"),
    [
        (
            ["--speculative-eagle-topkk", "2"],
            "sglang serve: error: unrecognized arguments: --speculative-eagle-topkk 2",
        ),
        (
            ["--attention-backend", "nosuch"],
            "sglang serve: error: argument --attention-backend: invalid choice: 'nosuch'",
        ),
        (
            ["--tp-size", "many"],
            "sglang serve: error: argument --tp-size/--tensor-parallel-size: invalid int value",
        ),
    ],
)
def test_wrong_usage_exits_2(flags, last_line):
    status, line = refusal("--model-path", "m", *flags)
    assert status == 2
    assert line.startswith(last_line)


def test_model_path_is_required():
    assert refusal()[0] == 2


@pytest.mark.parametrize(
    "env",
    [
        {"TUNER_SIM_PROFILE": "nosuch"},
        {"TUNER_SIM_TIME_SCALE": "0"},
        {"TUNER_SIM_SEED": "x"},
        {"TUNER_SWITCHABLE_STEPS": "1;2"},
        {"TUNER_SIM_MISBEHAVE": '[{"kind": "sulk"}]'},
    ],
    ids=str,
)
def test_wrong_environment_exits_2(env):
    status, line = refusal("--model-path", "m", env=env)
    assert status == 2
    assert "error" in line or "sulk" in line


@pytest.mark.parametrize(
    ("flags", "last_line"),
    [
        (["--speculative-algorithm", "EAGLE9"], "Unknown speculative algorithm name: EAGLE9"),
        (["--speculative-algorithm", "DSPARK"], "the simulated server has no model of DSPARK"),
        (["--speculative-algorithm", "EAGLE3", "--speculative-eagle-topk", "2"], "AssertionError"),
        (["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"], "TypeError"),
    ],
)
def test_refused_combination_exits_1(flags, last_line):
    status, line = refusal("--model-path", "m", *flags)
    assert status == 1
    assert last_line in line


def test_out_of_memory_in_the_graph_capture(start, speculation):
    trouble = [{"when": {"num_steps": 4}, "kind": "exit", "phase": "cuda_graph"}]
    env = {"TUNER_SIM_MISBEHAVE": json.dumps(trouble)}
    served = start(*speculation(4), env=env)
    assert served.exit_status() == -signal.SIGKILL  # 137 in a shell: it kills its own group
    assert "Capture target verify CUDA graph begin." in served.log
    assert "Exception: Capture cuda graph failed: CUDA out of memory." in served.log
    assert "Received sigquit from a child process. It usually means the child failed." in served.log
    start(*speculation(3), env=env).wait_ready()  # only what the condition names


def test_tree_beyond_its_capacity_dies_in_the_warm_up(start, speculation):
    served = start(*speculation(1, 2, 4), scale=1000.0)  # 3 nodes, but room for 2
    assert served.exit_status() == -signal.SIGKILL
    assert "Uvicorn running on" in served.log
    assert "RuntimeError: selected index k out of range" in served.log
    start(*speculation(1, 2, 3)).wait_ready()


def test_eagle3_without_a_draft(start):
    served = start("--speculative-algorithm", "EAGLE3")
    assert served.exit_status() == -signal.SIGKILL
    assert "has no attribute 'hot_token_id'" in served.log


def test_port_taken(start):
    first = start().wait_ready()
    second = start(port=first.port)
    assert second.exit_status() == 3
    log = second.log
    assert "error while attempting to bind on address" in log
    assert "The server is fired up and ready to roll!" in log  # it reached the other server
    assert first.generate().status_code == 200


def test_hang_in_the_start_up(start):
    trouble = [{"kind": "hang", "phase": "load_weight"}]
    served = start(env={"TUNER_SIM_MISBEHAVE": json.dumps(trouble)})
    served.wait_log("Load weight begin.")
    with pytest.raises(subprocess.TimeoutExpired):
        served.exit_status(timeout=1.0)
    with pytest.raises(httpx.ConnectError):
        served.client.get("/health")
    assert "Load weight end." not in served.log


def test_hang_under_load_with_good_health(start):
    trouble = [{"kind": "hang", "phase": "serving", "after_requests": 1, "health": "ok"}]
    served = start(env={"TUNER_SIM_MISBEHAVE": json.dumps(trouble)}).wait_ready()
    assert served.generate().status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/generate", json={"text": "x"}, timeout=0.5)
    assert served.client.get("/health").status_code == 200


def test_crash_under_load(start):
    trouble = [{"kind": "exit", "phase": "serving"}]
    served = start(env={"TUNER_SIM_MISBEHAVE": json.dumps(trouble)}, scale=1000.0).wait_ready()
    with pytest.raises(httpx.TransportError):
        served.generate()
    assert served.exit_status() == -signal.SIGKILL
    assert "crashed with exit code -9. Triggering SIGQUIT for cleanup..." in served.log


def test_never_ready_while_the_warm_up_hangs(start):
    trouble = [{"kind": "hang", "phase": "warmup"}]
    served = start(env={"TUNER_SIM_MISBEHAVE": json.dumps(trouble)})
    served.wait_log("Uvicorn running on")
    assert served.client.get("/health").status_code == 503
    assert served.client.get("/server_info").json()["status"] == "starting"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_cleanly(start, number):
    served = start().wait_ready()
    served.process.send_signal(number)
    assert served.exit_status() == 0


def test_phases_in_order(start, speculation):
    log = start(*speculation(2)).wait_ready().log
    lines = (
        "Init parallel begin.",
        "Load weight begin.",
        "Load weight end.",
        "type=LlamaForCausalLMEagle3",
        "KV Cache is allocated.",
        "Capture target verify CUDA graph begin.",
        "Capture target verify CUDA graph end.",
        "Capture draft decode CUDA graph begin.",
        "Uvicorn running on",
        "The server is fired up and ready to roll!",
    )
    places = [log.index(line) for line in lines]
    assert places == sorted(places)
