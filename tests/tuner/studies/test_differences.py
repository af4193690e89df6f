"""What may differ for a study to go on, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.records import Machine
from search_spaces.study_file.load import parse_study
from tuner.studies.differences import machine_differences, study_differences

from ..conftest import small_text

H200 = Machine(
    host="a",
    sglang="0.5.17",
    torch="2.9.1+cu128",
    nccl="2.27.5",
    python="3.12.1",
    driver="570.1",
    gpus=("NVIDIA H200",) * 2,
    topology="GPU0 GPU1",
    kernel="6.1",
    cpu="8 x Xeon",
)


def differences(change, *, simulated=True, **changes):
    before = small_text(**changes)
    after = change(before)
    assert after != before
    return study_differences(
        parse_study(before, "before"), parse_study(after, "after"), simulated=simulated
    )


def replaced(old, new):
    return lambda text: text.replace(old, new)


@pytest.mark.parametrize(
    ("change", "part", "message"),
    [
        (
            replaced("[1, 2, 3]", "[1, 2, 4]"),
            "space",
            "space.speculation[1].num_steps: was [1, 2, 3], now [1, 2, 4]",
        ),
        (
            replaced("{NCCL_PROTO:", "{OMP_NUM_THREADS: [null, 4], NCCL_PROTO:"),
            "space",
            'space.env.OMP_NUM_THREADS: was not given, now [null, "4"]',
        ),
        (replaced("K2.5, draft", "K2, draft"), "model", 'model.path: was "moonshotai/Kimi-K2.5"'),
        (
            replaced("max-running-requests: 64", "max-running-requests: 48"),
            "server",
            "server.flags.max-running-requests: was 64, now 48",
        ),
        (
            replaced("output_tokens: 64", "output_tokens: 128"),
            "workload",
            "workload.output_tokens.mean: was 64, now 128",
        ),
        (
            replaced("subject_to: {}", "subject_to: {ttft_p95_ms: 900}"),
            "objective",
            "objective.subject_to.ttft_p95_ms: was not given, now 900.0",
        ),
        (replaced("runner: simulated", "runner: sglang"), "runner", 'runner: was "simulated"'),
        (replaced("time_scale: 50", "time_scale: 60"), "simulated", "simulated.time_scale: was 50"),
    ],
)
def test_a_change_that_matters_is_told_with_both_values(change, part, message):
    (found,) = differences(change)
    assert found.part == part
    assert found.matters
    assert found.message.startswith(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: f"# a comment\n{text}",
        replaced("hours: 6", "hours: 6.0"),
        replaced("[1, 2, 3]", "[3, 2, 1]"),
        replaced('[null, "LL,LL128,Simple"]', '["LL,LL128,Simple", null]'),
        replaced("tp-size: 8", "tensor-parallel-size: 8"),
    ],
)
def test_spelling_and_order_are_no_change(change):
    assert differences(change) == ()


def test_budget_and_addresses_change_no_figure():
    (budget,) = differences(replaced("launches: 24", "launches: 48"))
    assert (budget.part, budget.matters) == ("budget", False)
    assert budget.message == "budget.launches: was 24, now 48"
    (port,) = differences(replaced("{tp-size: 8,", "{tp-size: 8, port: 8000,"))
    assert (port.part, port.matters) == ("export", False)


def test_a_key_is_never_told():
    # A study that was stored before keys were refused.
    old = small_text().replace("{tp-size: 8,", "{tp-size: 8, api-key: sk-very-secret,")
    before, after = parse_study(old, "before", stored=True), parse_study(small_text(), "after")
    (key,) = study_differences(before, after, simulated=True)
    assert "very-secret" not in key.message
    assert not key.matters


def test_a_simulations_settings_are_nothing_to_a_real_server():
    assert differences(replaced("time_scale: 50", "time_scale: 60"), simulated=False) == ()


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (replace(H200, sglang="0.5.23"), "SGLang: measured with 0.5.17, now 0.5.23"),
        (
            replace(H200, torch="2.9.1+cu130"),
            "PyTorch: measured with 2.9.1+cu128, now 2.9.1+cu130",
        ),
        (replace(H200, nccl="2.28.3"), "NCCL: measured with 2.27.5, now 2.28.3"),
        (
            replace(H200, gpus=("NVIDIA H100", "NVIDIA H200")),
            "GPUs: measured with 2 x NVIDIA H200, now 1 x NVIDIA H100 + 1 x NVIDIA H200",
        ),
        (replace(H200, gpus=("NVIDIA H200",)), "GPUs: measured with 2 x NVIDIA H200, now 1 x"),
        (replace(H200, gpus=()), "GPUs: measured with 2 x NVIDIA H200, now none"),
    ],
)
def test_another_engine_or_gpu_forbids_to_go_on(now, message):
    (found,), notes = machine_differences(H200, now)
    assert found.message.startswith(message)
    assert found.matters
    assert notes == ()


def test_driver_kernel_host_and_topology_deserve_a_word():
    now = replace(
        H200, driver="580.2", kernel="6.8", host="b", topology="GPU1 GPU0", cpu="9 x Xeon"
    )
    found, notes = machine_differences(H200, now)
    assert found == ()
    assert [note.partition(":")[0] for note in notes] == [
        *("host", "driver", "kernel", "CPU", "topology")
    ]
    assert "driver: measured with 570.1, now 580.2" in notes


def test_what_is_not_known_is_no_difference_and_a_cpu_has_no_gpus():
    assert machine_differences(Machine(gpus=H200.gpus), H200) == ((), ())
    assert machine_differences(H200, replace(H200, gpus=()), uses_gpus=False) == ((), ())
