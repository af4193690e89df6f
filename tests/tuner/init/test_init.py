"""`tuner init` from a launch command: the study and the output."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
import sys

import pytest

from search_spaces.space.baselines import production_configuration
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study
from search_spaces.study_file.warnings import warnings
from tuner.cli.app import run
from tuner.commands.init import write
from tuner.errors import CommandError

from .init_machines import fake_nvidia_smi, topology

pytestmark = pytest.mark.slow

KIMI = (
    "NCCL_PROTO=LL python -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8 "
    "--trust-remote-code --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3 --speculative-num-steps 5 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --port 30000"
)
LLAMA = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    """Run `tuner init` in an empty folder on a machine without GPUs, and return the study."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _name: None)

    def call(*arguments, code=0, output="made.yaml"):
        assert run(["init", "--output", output, *arguments]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        study = load_study(f"./{output}") if code == 0 else None
        return study, printed.out + printed.err

    return call


def algorithms(study):
    return [part.algorithm for part in study.space.speculation]


def test_todays_command_becomes_a_study(make, tmp_path):
    study, printed = make("--from-command", KIMI, "--gpus", "8x RTX PRO 6000")
    assert study.name == "kimi-k2.5"
    assert study.model.path == "moonshotai/Kimi-K2.5"
    assert study.model.draft == "lightseekorg/kimi-k2.5-eagle3"
    assert list(study.server.flags)[:3] == ["tp-size", "trust-remote-code", "port"]
    assert study.server.flags["max-running-requests"] == 64
    assert study.server.env == {}
    assert algorithms(study) == ["none", "EAGLE3", "EAGLE3"]
    assert study.space.speculation[1].num_steps == (1, 2, 3, 4, 5, 6, 7)
    assert study.space.speculation[2].flags == {"speculative-adaptive": (True,)}
    assert study.space.env["NCCL_PROTO"] == (None, "LL,LL128,Simple", "LL128", "Simple", "LL")
    assert study.production is not None
    assert study.production.command == KIMI
    assert warnings(study) == ()
    points = len(Space(study))
    assert f"24 launches for {points} configurations; TPE searches" in printed
    assert "none, default, production" in printed
    for command in (
        "tuner validate --study ./made.yaml",
        "tuner sweep --study ./made.yaml --dry-run",
        "tuner sweep --study ./made.yaml\n",
    ):
        assert command in printed
    assert [path.name for path in tmp_path.iterdir()] == ["made.yaml"]


def test_tuned_settings_include_todays_value(make):
    command = KIMI.replace("NCCL_PROTO=LL ", "NCCL_PROTO=LL,Simple NCCL_MIN_NCHANNELS=16 ").replace(
        "num-steps 5", "num-steps 9"
    )
    study, _ = make("--from-command", command, "--gpus", "8x L40S")
    assert study.space.env["NCCL_PROTO"][-1] == "LL,Simple"
    assert study.space.env["NCCL_MIN_NCHANNELS"] == (None, "4", "8", "16")
    assert study.space.speculation[1].num_steps[-1] == 9
    assert "NCCL_PROTO" not in study.server.env


def test_another_spelling_of_a_choice_is_not_added(make):
    own = "=simple,ll128,ll SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=true "
    study, _ = make("--from-command", KIMI.replace("=LL ", own), "--gpus", "8x L4")
    assert len(study.space.env["NCCL_PROTO"]) == 5
    assert study.space.env["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"] == (None, "1")


def test_one_gpu_gets_no_nccl_settings(make):
    study, printed = make("--from-command", LLAMA)
    assert study.space.env == {}
    assert algorithms(study) == ["none", "NGRAM"]
    assert "--draft lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B" in printed
    assert "One GPU:" in study.text


def test_nvlink_gets_no_nccl_settings(make):
    study, _ = make("--from-command", KIMI, "--gpus", "8x H200")
    assert study.space.env == {}
    assert study.server.env == {"NCCL_PROTO": "LL"}
    assert "disable-custom-all-reduce" not in study.server.flags
    study, _ = make(
        "--force", "--from-command", f"{KIMI} --disable-custom-all-reduce", "--gpus", "8x H200"
    )
    assert study.space.flags == {"disable-custom-all-reduce": (None, True)}


def test_two_pcie_gpus_compare_sglangs_kernel_with_nccl(make):
    command = f"{LLAMA} --tp 2"
    study, _ = make("--from-command", command, "--gpus", "2x RTX 4090")
    assert study.space.flags == {"disable-custom-all-reduce": (None, True)}
    assert set(study.space.env) == {"NCCL_PROTO"}
    # SGLang's own kernel and 5 NCCL protocols, times no speculation and 4 NGRAM widths.
    assert len(Space(study)) == 6 * 5


def test_without_p2p_sglangs_kernel_is_off(make):
    command = f"NCCL_P2P_DISABLE=1 {LLAMA} --tp 2"
    study, _ = make("--from-command", command, "--gpus", "2x RTX 4090")
    assert study.server.flags["disable-custom-all-reduce"] is True
    assert study.server.env == {"NCCL_P2P_DISABLE": "1"}
    assert set(study.space.env) == {"NCCL_PROTO", "NCCL_MIN_NCHANNELS"}


def test_an_unknown_interconnect_is_assumed_with_a_note(make):
    study, printed = make("--from-command", f"{LLAMA} --tp 4")
    assert "assumed to be PCIe" in printed
    assert "--interconnect nvlink" in printed
    assert "NCCL_PROTO" in study.space.env
    study, printed = make(
        "--force", "--from-command", f"{LLAMA} --tp 4", "--interconnect", "nvlink"
    )
    assert "assumed to be PCIe" not in printed
    assert study.space.env == {}
    assert "4 GPUs (assumed from the command), NVLink (given)" in printed


def test_the_gpus_of_this_machine_are_detected(tuner, tmp_path):
    folder = fake_nvidia_smi(tmp_path / "bin", "NVIDIA A40", 4, topology(4, "SYS", bridged="NV4"))
    tuner.env["PATH"] = f"{folder}:{tuner.env['PATH']}"
    command = f"CUDA_VISIBLE_DEVICES=2,3 {LLAMA} --tp 2"
    done = tuner.run("init", "--from-command", command, "--json", "--output", "pair.yaml")
    data = json.loads(done.stdout)
    assert data["hardware"] == {
        "gpus": 2,
        "name": "NVIDIA A40",
        "interconnect": "nvlink",
        "source": "nvidia-smi",
    }
    done = tuner.run("init", "--from-command", f"{LLAMA} --tp 4", "--json", "--output", "all.yaml")
    assert json.loads(done.stdout)["hardware"]["interconnect"] == "pcie"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("deepseek-ai/DeepSeek-V3-0324", "NEXTN"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "NGRAM"),
        ("zai-org/GLM-4.5-Air", "NEXTN"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "NEXTN"),
        ("XiaomiMiMo/MiMo-7B-RL", "NEXTN"),
        ("Qwen/Qwen3-235B-A22B", "NGRAM"),
        ("moonshotai/Kimi-K2-Instruct", "NGRAM"),
    ],
)
def test_models_with_mtp_layers_need_no_draft(make, model, found):
    study, _ = make("--from-command", f"python -m sglang.launch_server --model-path {model}")
    assert algorithms(study)[1] == found


def test_a_local_config_decides_about_mtp_layers(make, tmp_path):
    (tmp_path / "mine").mkdir()
    config = {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1}
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    study, _ = make("--from-command", "python -m sglang.launch_server --model-path ./mine")
    assert algorithms(study)[1] == "NEXTN"
    assert study.name == "mine"
    config["num_nextn_predict_layers"] = 0
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    study, _ = make("--force", "--model", "./mine", "--yes")
    assert algorithms(study)[1] == "NGRAM"


def test_eagle_without_a_draft_is_nextn(make):
    study, _ = make(
        "--from-command",
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 "
        "--speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 2",
        "--gpus",
        "8x H200",
    )
    assert algorithms(study) == ["none", "NEXTN", "NEXTN"]
    assert study.model.draft is None


def test_dp_attention_excludes_speculation_without_support(make):
    study, printed = make(
        "--from-command", f"{LLAMA} --tp 2 --dp 2 --enable-dp-attention", "--gpus", "2x H200"
    )
    assert algorithms(study) == ["none"]
    assert "DP attention" in printed


def test_many_requests_get_chains_with_few_steps(make):
    study, _ = make("--from-command", KIMI, "--gpus", "8x H200", "--concurrency", "64,128")
    assert study.space.speculation[1].num_steps == (1, 2, 3, 4, 5)  # includes today's 5
    assert study.space.speculation[1].topk == (1,)
    assert study.server.flags["max-running-requests"] == 256


def test_trees_need_a_backend_that_supports_them(make):
    study, _ = make("--from-command", f"{KIMI} --attention-backend flashinfer", "--gpus", "8x H200")
    assert study.space.speculation[1].topk == (1, 4)
    assert warnings(study) == ()
    study, _ = make("--force", "--from-command", f"{KIMI} --attention-backend trtllm_mla")
    assert study.space.speculation[1].topk == (1,)


def test_a_draft_can_be_added(make):
    study, _ = make("--from-command", LLAMA, "--draft", "org/llama-eagle3")
    assert algorithms(study)[1] == "EAGLE3"
    assert study.model.draft == "org/llama-eagle3"
    assert "--draft" not in study.production.command


def test_another_draft_drops_the_production_baseline(make):
    study, printed = make("--from-command", KIMI, "--draft", "org/other-eagle3")
    assert study.model.draft == "org/other-eagle3"
    assert study.production is None
    assert "uses the draft lightseekorg/kimi-k2.5-eagle3" in printed
    study, _ = make("--force", "--from-command", KIMI, "--algorithm", "NGRAM")
    assert algorithms(study) == ["none", "NGRAM"]
    assert study.production is not None


@pytest.mark.parametrize("arguments", [("--gpus", "8x MI300X"), ()])
def test_amd_gpus_get_no_nccl_settings(make, arguments):
    study, printed = make(
        "--from-command", f"SGLANG_USE_AITER=1 {KIMI.split(' ', 1)[1]}", *arguments
    )
    assert study.space.env == {}
    assert "assumed to be PCIe" not in printed


def test_prompt_paths_start_at_the_study(make, tmp_path):
    lines = "".join(json.dumps(f"question {n}") + "\n" for n in range(100))
    (tmp_path / "mine.jsonl").write_text(lines)
    (tmp_path / "studies").mkdir()
    study, _ = make("--from-command", LLAMA, "--prompts", "mine.jsonl", output="studies/a.yaml")
    assert list(study.workload.prompts) == [f"jsonl:{tmp_path / 'mine.jsonl'}"]


def test_every_workload_option(make, tmp_path):
    (tmp_path / "mine.jsonl").write_text(
        "".join(json.dumps({"prompt": f"question {n}"}) + "\n" for n in range(400))
    )
    study, printed = make(
        "--from-command", LLAMA, "--concurrency", "1,8", "--prompts", "chat=0.25,mine.jsonl=0.75",
        "--output-tokens", "128", "--ttft-ms", "1500", "--goodput", "ttft:500,tpot:50",
        "--launches", "4", "--hours", "2.5", "--name", "other", "--runner", "simulated",
    )  # fmt: skip
    workload = study.to_workload()
    assert [point.concurrency for point in workload.points] == [1, 8]
    assert dict(workload.prompts) == {"chat": 0.25, "jsonl:mine.jsonl": 0.75}
    assert workload.output_tokens == 128
    assert study.objective.maximize == "goodput_request_s"
    assert study.objective.subject_to == {"ttft_p95_ms": 1500}
    assert (workload.goodput.ttft_ms, workload.goodput.tpot_ms) == (500, 50)
    assert (study.budget.launches, study.budget.hours) == (4, 2.5)
    assert (study.name, study.runner) == ("other", "simulated")
    assert study.simulated.profile == "llama-8b-h200"
    assert "4 launches for 5 configurations" in printed


def test_a_request_rate_minimizes_latency_or_maximizes_goodput(make):
    study, _ = make("--from-command", LLAMA, "--rate", "4")
    assert study.objective.minimize == "e2e_p95_ms"
    assert study.to_workload().points[0].request_rate == 4
    study, _ = make("--force", "--from-command", LLAMA, "--rate", "2,8", "--goodput", "e2e:9000")
    assert study.objective.maximize == "goodput_request_s"
    assert warnings(study) == ()


def test_concurrency_accepts_request_rates(make):
    study, _ = make("--from-command", LLAMA, "--concurrency", "8, 4/s", "--goodput", "ttft:500")
    points = study.to_workload().points
    assert [(point.concurrency, point.request_rate) for point in points] == [(8, None), (None, 4)]


def test_ngram_has_one_branch_with_pages(make):
    study, _ = make("--from-command", f"{LLAMA} --page-size 64")
    assert study.space.speculation[1].flags == {"speculative-ngram-max-bfs-breadth": (1,)}
    assert len(Space(study)) == 5


def test_an_illegal_algorithm_is_left_out_with_the_rule(make):
    command = f"{LLAMA} --pp-size 2"
    study, printed = make("--from-command", command, "--gpus", "2x H200")
    assert algorithms(study) == ["none"]
    assert "NGRAM is left out: NGRAM does not run with pp-size > 1" in printed


def test_a_cpu_has_no_gpus(make):
    study, printed = make("--from-command", f"{LLAMA} --device cpu --tp 2")
    assert "hardware   device cpu" in printed
    assert study.space.env == {}


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("--concurrency", "0", "1,8,64"),
        ("--concurrency", "eight", "1,8,64"),
        ("--rate", "-1", "above 0"),
        ("--prompts", "chta", "chat"),
        ("--prompts", "none.jsonl", "no file"),
        ("--output-tokens", "1.5", "256"),
        ("--ttft-ms", "fast", "2000"),
        ("--goodput", "latency:5", "ttft:500,tpot:50"),
        ("--launches", "0", "24"),
        ("--hours", "nan", "6"),
        ("--gpus", "4090", "8x RTX PRO 6000"),
        ("--algorithm", "EAGEL3", "EAGLE3"),
        ("--algorithm", "EAGLE3", "--draft"),
        ("--draft", "four", "organization"),
        ("--name", "a b", "letters, digits"),
        ("--output", "study.txt", ".yaml"),
        ("--output", "nowhere/study.yaml", "no folder"),
        ("--set", "MODEL", "--set MODEL=org/name"),
        ("--set", "MODEL=a b", "plain word"),
        ("--model", "x/y", "--from-command"),
        ("--from-command", "gone.sh", "no such file"),
        ("--from-command", "echo hello", "sglang.launch_server"),
    ],
)
def test_a_wrong_option_is_refused_with_the_remedy(make, tmp_path, flag, value, hint):
    _, printed = make("--from-command", LLAMA, flag, value, code=2)
    assert flag in printed
    assert hint in printed
    assert list(tmp_path.iterdir()) == []


def test_an_interconnect_is_pcie_or_nvlink(make):
    _, printed = make("--from-command", f"{LLAMA} --tp 2", "--interconnect", "usb", code=2)
    assert "pcie or nvlink" in printed


def test_too_few_prompts_are_refused_before_anything_is_written(make, tmp_path):
    (tmp_path / "few.jsonl").write_text('"one"\n"two"\n')
    _, printed = make("--from-command", LLAMA, "--prompts", "few.jsonl", code=2)
    assert "workload.points" in printed
    assert not (tmp_path / "made.yaml").exists()


def test_variables_of_the_command(make):
    command = 'python -m sglang.launch_server --model-path "$MODEL" --tp ${TP}'
    _, printed = make("--from-command", command, code=2)
    assert "--set MODEL=VALUE" in printed
    assert "--set TP=VALUE" in printed
    study, _ = make(
        "--from-command", command, "--set", "MODEL=Qwen/Qwen3-8B", "--set", "TP=2",
        "--interconnect", "pcie",
    )  # fmt: skip
    assert study.model.path == "Qwen/Qwen3-8B"
    assert study.server.flags["tp-size"] == 2
    assert "$" not in study.production.command


def test_secrets_are_never_written(make):
    study, printed = make(
        "--from-command",
        f"HF_TOKEN=hf_0123456789abcdefghij {LLAMA} --api-key sk-secret-key-1234567890",
    )
    for text in (study.text, printed):
        assert "hf_0123" not in text
        assert "sk-secret" not in text
    assert study.server.flags["api-key"] == "$SGLANG_API_KEY"
    assert "HF_TOKEN" not in study.server.env
    assert "export them in your shell: HF_TOKEN" in study.text


def test_a_given_secret_is_not_written(make):
    command = f'HF_TOKEN=$HF_TOKEN {LLAMA} --api-key "$MINE" --revision $REVISION'
    sets = ("--set", "HF_TOKEN=hunter2", "--set", "MINE=hunter3", "--set", "REVISION=v1")
    study, printed = make("--from-command", command, *sets)
    assert "hunter" not in study.text + printed
    assert "--set MINE is a secret" in printed
    assert study.server.flags["api-key"] == "$MINE"
    assert study.server.flags["revision"] == "v1"


def test_docker_run_is_not_a_prefix(make):
    study, printed = make(
        "--from-command",
        "docker run -d --name sgl --gpus all --shm-size 32g -p 30000:30000 "
        "-v ~/.cache/huggingface:/root/.cache/huggingface -e HF_TOKEN=hf_0123456789abcdefghij "
        f"--ipc=host lmsysorg/sglang:v0.5.9 {LLAMA} --host 0.0.0.0",
    )
    assert study.server.prefix == ()
    assert study.server.python is None
    assert (
        "docker run -it --gpus all --shm-size 32g "
        "-v ~/.cache/huggingface:/root/.cache/huggingface --ipc=host -e HF_TOKEN "
        '-v "$PWD":"$PWD" -w "$PWD" lmsysorg/sglang:v0.5.9 bash'
    ) in printed


def test_docker_exec_is_a_prefix(make):
    study, printed = make("--from-command", f"docker exec -it -e NCCL_DEBUG=WARN sgl {LLAMA}")
    assert study.server.prefix == ("docker", "exec", "-i", "sgl")
    assert study.server.python == "python3"
    assert study.server.env == {"NCCL_DEBUG": "WARN"}
    assert "docker run" not in printed


def test_srun_and_numactl_are_a_prefix(make):
    study, _ = make("--from-command", f"srun --gres=gpu:1 numactl --cpunodebind=0 {LLAMA}")
    assert study.server.prefix == ("srun", "--gres=gpu:1", "numactl", "--cpunodebind=0")


def test_simulated_acceptance_is_left_out_with_a_note(make):
    command = f"SGLANG_SIMULATE_ACC_LEN=2.99 SGLANG_SIMULATE_ACC_METHOD=match-expected {KIMI}"
    study, printed = make("--from-command", command, "--gpus", "8x RTX PRO 6000")
    assert "SIMULATE_ACC" not in study.text
    assert study.production.command == KIMI
    assert "`SGLANG_SIMULATE_ACC_LEN`, `SGLANG_SIMULATE_ACC_METHOD` left out" in printed


def test_values_that_nccl_refuses_stay_only_in_the_production_baseline(make):
    study, printed = make(
        "--from-command",
        "NCCL_PROTO=LL256 NCCL_P2P_LEVEL=sys NCCL_BUFFSIZE=4M NCCL_MIN_CTAS=16 NCCL_MAX_CTAS=4 "
        f"NCCL_DEBUG=WARN {LLAMA} --tp 4",
        *("--gpus", "4x RTX PRO 6000"),
    )
    assert study.server.env == {"NCCL_DEBUG": "WARN"}
    assert not {"LL256", "sys"} & {v for values in study.space.env.values() for v in values}
    printed = " ".join(printed.split())
    assert "did you mean `LL128`? (only the baseline 'production' keeps it)" in printed
    assert "NCCL_MIN_CTAS 16 is more than NCCL_MAX_CTAS 4" in printed
    production = dict(production_configuration(study).env)
    assert production["NCCL_PROTO"] == "LL256"
    assert production["NCCL_BUFFSIZE"] == "4M"


def test_adaptive_speculation_without_a_configuration_file(make):
    command = f"{LLAMA} --speculative-algorithm EAGLE3 --speculative-adaptive"
    study, _ = make("--from-command", f"{command} --speculative-draft-model-path d/d")
    adaptive = [part for part in study.space.speculation if part.flags]
    assert [part.flags for part in adaptive] == [{"speculative-adaptive": (True,)}]


def test_a_value_that_sglang_refuses_is_an_error(make):
    _, printed = make("--from-command", f"{LLAMA} --tp $N", "--set", "N=x", code=2)
    assert "the command has --tp-size: " in printed
    _, printed = make("--from-command", f"{LLAMA} --attention-backend flashinver", code=2)
    assert "did you mean `flashinfer`?" in printed


def test_arguments_of_a_script_can_be_set(make):
    script = 'start() { python -m sglang.launch_server --model-path "$1" --tp ${2}; }; start a b'
    refused = " ".join(make("--from-command", script, code=2)[1].split())
    assert "--set 1=VALUE --set 2=VALUE" in refused
    study, _ = make("--from-command", script, "--set", "1=org/m", "--set", "2=4")
    assert (study.model.path, study.server.flags["tp-size"]) == ("org/m", 4)
    assert '--model-path "org/m" --tp "4"' in study.production.command


def test_a_study_file_is_not_a_command(make, tmp_path):
    (tmp_path / "s.yaml").write_text("study: s\nmodel: {path: m/m}\n")
    assert "it is a study file already" in make("--from-command", "s.yaml", code=2)[1]


def test_a_disaggregated_server_gets_a_note(make):
    _, printed = make("--from-command", f"{LLAMA} --disaggregation-mode prefill")
    assert "half of a server pair" in " ".join(printed.split())
    assert "half" not in make("--from-command", LLAMA, output="other.yaml")[1]


def test_renamed_flags_get_the_names_of_the_running_version(make):
    flags = "--cuda-graph-max-bs 96 --enable_flashmla --enable-ep-moe"
    image = "docker run lmsysorg/sglang:"
    study, printed = make("--from-command", f"{image}v0.5.23 {KIMI} {flags}")
    assert study.server.flags["cuda-graph-max-bs-decode"] == 96
    assert study.server.flags["attention-backend"] == "flashmla"
    assert study.server.flags["max-running-requests"] == 96
    assert "# today's --cuda-graph-max-bs, renamed in SGLang 0.5.23" in study.text
    assert {"cuda-graph-max-bs", "enable-flashmla"}.isdisjoint(study.server.flags)
    assert "--cuda-graph-max-bs-decode 96 --attention-backend flashmla" in study.production.command
    printed = " ".join(printed.split())
    assert "`--cuda-graph-max-bs` is written as `--cuda-graph-max-bs-decode`" in printed
    assert printed.count("`--cuda-graph-max-bs`") == printed.lower().count("enable-flashmla`") == 1
    # A switch that became a number has another meaning.
    assert study.server.flags["enable-ep-moe"] is True
    for other in ("v0.5.17", "latest"):
        study, _ = make("--force", "--from-command", f"{image}{other} {KIMI} {flags}")
        assert study.server.flags["cuda-graph-max-bs"] == 96
        assert "--cuda-graph-max-bs 96 " in study.production.command
    study, _ = make("--force", "--from-command", f"{KIMI} {flags}", "--runner", "simulated")
    assert study.server.flags["cuda-graph-max-bs-decode"] == 96


def test_the_installed_sglang_decides_the_flag_names(make, tmp_path, monkeypatch):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 0.5.25rc1\n")
    python.chmod(0o755)
    monkeypatch.setenv("TUNER_SGLANG_PYTHON", str(python))
    study, _ = make("--from-command", f"{LLAMA} --cuda-graph-max-bs 8")
    assert study.server.flags["cuda-graph-max-bs-decode"] == 8
    for elsewhere in (
        ("--gpus", "H100"),
        ("--from-command", f"srun {LLAMA} --cuda-graph-max-bs 8"),
    ):
        command = ("--from-command", f"{LLAMA} --cuda-graph-max-bs 8")
        study, _ = make("--force", *command, *elsewhere)
        assert study.server.flags["cuda-graph-max-bs"] == 8
    monkeypatch.setenv("TUNER_SGLANG_PYTHON", "/gone/python")
    study, _ = make("--force", "--from-command", f"{LLAMA} --cuda-graph-max-bs 8")
    assert study.server.flags["cuda-graph-max-bs"] == 8


def test_fixed_max_running_requests_has_a_note_and_covers_todays_graph_batches(make):
    study, printed = make("--from-command", f"{KIMI} --cuda-graph-bs 1 8 160")
    assert study.server.flags["max-running-requests"] == 160
    printed = " ".join(printed.split())
    assert "`max-running-requests` is fixed at 160" in printed
    assert "--max-running-requests" not in study.production.command
    study, printed = make("--force", "--from-command", f"{KIMI} --max-running-requests 32")
    assert study.server.flags["max-running-requests"] == 32
    assert "is fixed at" not in printed


def test_given_values_override_those_of_the_script(make):
    script = "TP=$(nvidia-smi -L | wc -l)\npython -m sglang.launch_server --model-path a/b --tp $TP"
    refused = " ".join(make("--from-command", script, code=2)[1].split())
    assert "uses $(nvidia-smi -L | wc -l), but" in refused
    assert refused.endswith("--set TP=VALUE")
    direct = script.replace("TP=", "N=1\n: ").replace("$TP", "$(nproc --all)")
    assert "--set '$(nproc --all)=VALUE'" in make("--from-command", direct, code=2)[1]
    for option in ("TP=4", "$(nvidia-smi -L | wc -l)=4"):
        study, printed = make("--force", "--from-command", script, "--set", option)
        assert study.server.flags["tp-size"] == 4
        assert "no such variable" not in printed
        assert "--tp 4" in study.production.command.replace('"', "")
    _, printed = make("--force", "--from-command", script, "--set", "TP=4", "--set", "PORT=1")
    assert "--set PORT: the command uses no such variable" in printed


def test_service_selects_one_of_several(make, tmp_path):
    file = f"services:\n  a:\n    command: {LLAMA}\n  b:\n    command: {LLAMA} --page-size 16\n"
    (tmp_path / "compose.yaml").write_text(file)
    study, printed = make("--from-command", "compose.yaml")
    assert "page-size" not in study.server.flags
    assert "`--service b`" in printed
    study, printed = make("--force", "--from-command", "compose.yaml", "--service", "b")
    assert study.server.flags["page-size"] == 16
    _, printed = make("--force", "--from-command", "compose.yaml", "--service", "c", code=2)
    assert "no service c in it; those that start SGLang are a, b" in " ".join(printed.split())
    assert "--service needs" in make("--force", "--model", "a/b", "--service", "b", code=2)[1]


def test_a_mistake_has_one_note(make):
    _, printed = make("--from-command", f"{LLAMA} --mem-fracton-static 0.8")
    assert printed.count("mem-fracton-static") == 1


def test_an_api_key_variable_is_not_a_server_variable(make):
    study, printed = make(
        "--from-command", f'export SGLANG_API_KEY=k\n{LLAMA} --api-key "$SGLANG_API_KEY"'
    )
    assert study.production.command == f'{LLAMA} --api-key "$SGLANG_API_KEY"'
    assert "reads no such variable" not in printed
    assert warnings(study) == ()


def test_an_old_image_gets_no_unsupported_settings(make):
    command = f"docker run --gpus all lmsysorg/sglang:v0.5.9-cu130 {KIMI.split(' ', 1)[1]}"
    study, _ = make("--from-command", command, "--gpus", "8x RTX PRO 6000")
    assert algorithms(study) == ["none", "EAGLE3"]
    assert "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE" not in study.space.env


def test_nothing_is_overwritten_without_force(make, tmp_path):
    make("--from-command", LLAMA)
    before = (tmp_path / "made.yaml").read_text()
    _, printed = make("--from-command", KIMI, code=2)
    assert "--force" in printed
    assert (tmp_path / "made.yaml").read_text() == before
    make("--from-command", KIMI, "--force")
    assert (tmp_path / "made.yaml").read_text() != before


def test_a_file_created_meanwhile_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "study.yaml"
    path.write_text("theirs")
    with pytest.raises(CommandError, match="exists already"):
        write(path, "ours", force=False)
    # A file system without hard links.
    monkeypatch.setattr("pathlib.Path.hardlink_to", _no_links)
    with pytest.raises(CommandError, match="exists already"):
        write(path, "ours", force=False)
    assert path.read_text() == "theirs"
    path.unlink()
    write(path, "ours", force=False)
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]


def _no_links(*_arguments, **_options):
    raise OSError(95, "Operation not supported")


def test_an_unwritable_folder_is_an_error(make, tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.write_text", _no_links)
    _, printed = make("--from-command", LLAMA, code=2)
    assert "cannot write made.yaml" in printed
    assert list(tmp_path.iterdir()) == []


def test_next_commands_quote_paths_with_blanks(make, tmp_path):
    (tmp_path / "my studies").mkdir()
    _, printed = make("--from-command", LLAMA, output="my studies/a b.yaml")
    assert "tuner validate --study 'my studies/a b.yaml'" in printed


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("sudo docker exec -itd sgl", ("sudo", "docker", "exec", "-i", "sgl")),
        ("ssh host docker exec -t sgl", ("ssh", "host", "docker", "exec", "sgl")),
        ("docker exec -u me sgl numactl -N 0", ("docker", "exec", "-u", "me", "sgl", "numactl",
                                               "-N", "0")),
        ("kubectl exec -it pod -n ns --", ("kubectl", "exec", "pod", "-i", "-n", "ns", "--")),
        ("sudo docker run --gpus all lmsysorg/sglang", ()),
        ("docker run lmsysorg/sglang numactl -N 0", ("numactl", "-N", "0")),
        ("taskset -c 0-15", ("taskset", "-c", "0-15")),
    ],
)  # fmt: skip
def test_prefixes(make, command, prefix):
    study, _ = make("--from-command", f"{command} {LLAMA}")
    assert study.server.prefix == prefix


def test_the_same_command_makes_the_same_file(make):
    study, _ = make("--from-command", KIMI)
    again, _ = make("--from-command", KIMI, "--force")
    assert again.text == study.text


def test_to_stdout_and_from_stdin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"#!/bin/sh\nexec {LLAMA} \\\n  --tp 1\n"))
    assert run(["init", "--from-command", "-", "--output", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("# Made by")
    assert "next:" in printed.err
    assert list(tmp_path.iterdir()) == []
    assert run(["init", "--from-command", LLAMA, "--output", "-", "--json"]) == 2


@pytest.mark.parametrize(
    ("name", "where", "text"),
    [
        ("launch.sh", "", f"#!/bin/bash\nset -e\nMODEL=a/b\n{LLAMA} \\\n    --tp 1\n"),
        ("Dockerfile", "Dockerfile", f"FROM lmsysorg/sglang\nCMD {json.dumps(LLAMA.split())}\n"),
        ("compose.yml", "compose file", f"services:\n  s:\n    command: {LLAMA}\n"),
    ],
)  # fmt: skip
def test_commands_are_read_from_files(make, tmp_path, name, where, text):
    (tmp_path / name).write_text(text)
    study, printed = make("--from-command", name)
    assert study.model.path == "meta-llama/Llama-3.1-8B-Instruct"
    assert f"from {name}" in printed
    assert f"from {name}" in study.text
    if name != "launch.sh":
        assert f"(a {where})" in " ".join(printed.split())
        assert "--entrypoint bash" in printed


def test_the_output_shows_how_to_enter_the_container(make, tmp_path):
    (tmp_path / "compose.yml").write_text(f"services:\n  my llm:\n    command: {LLAMA}\n")
    _, printed = make("--from-command", "compose.yml")
    run = """docker compose run --rm -v "$PWD":"$PWD" -w "$PWD" --entrypoint bash 'my llm'\n"""
    assert run in printed
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
    pod += f"  - {{name: llm, image: lmsysorg/sglang, args: {json.dumps(LLAMA.split())}}}\n"
    (tmp_path / "pod.yaml").write_text(pod)
    _, printed = make("--force", "--from-command", "pod.yaml")
    assert "kubectl exec -it POD -c llm -- bash\n" in printed
    assert "image lmsysorg/sglang (a Kubernetes manifest)" in " ".join(printed.split())
    assert "use today's image with `--image lmsysorg/sglang`." in printed


def test_the_output_lists_all_points(make):
    _, printed = make("--from-command", LLAMA, "--concurrency", "1, 16, 4/s")
    assert "at concurrency 1 and 16, 4 requests/s" in printed


def test_json_describes_the_study(make, capsys, tmp_path):
    _, printed = make("--from-command", KIMI, "--json", "--gpus", "8x RTX 4090")
    data = json.loads(printed)
    assert data["file"] == "made.yaml"
    assert data["study"] == "kimi-k2.5"
    assert data["baselines"] == ["none", "default", "production"]
    assert data["hardware"]["interconnect"] == "pcie"
    assert data["planner"] == "tpe"
    assert data["legal_points"] == len(Space(load_study(tmp_path / "made.yaml")))


def test_the_model_names_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--from-command", LLAMA]) == 0
    assert (tmp_path / "llama-3.1-8b.yaml").exists()
    assert "--study ./llama-3.1-8b.yaml" in capsys.readouterr().out


def test_the_next_commands_work(tuner):
    done = tuner.run("init", "--from-command", KIMI, "--gpus", "8x RTX PRO 6000")
    *_, validate, dry_run, _sweep = done.stdout.splitlines()
    assert "is valid" in tuner.run(*shlex.split(validate)[1:]).stdout
    plan = json.loads(tuner.run(*shlex.split(dry_run)[1:], "--json").stdout)
    assert set(plan["baselines"]) == {"none", "default", "production"}
    # Today's command without the fixed flags and the choices of the study.
    command = plan["baselines"]["production"]["command"]
    assert "NCCL_PROTO=LL " in command
    assert "--speculative-num-steps 5 " in command
    assert "--disable-custom-all-reduce" not in command
    assert "--max-running-requests" not in command


def test_a_command_or_model_is_required_without_a_terminal(tuner):
    process = subprocess.run(
        [sys.executable, "-m", "tuner", "init"],
        cwd=tuner.folder,
        env=tuner.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "--from-command" in process.stderr
