"""SGLang's own data sets: the helper in the server's environment, a stand-in and the real one."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from runners.load.prompts.prompts import PromptFileError
from runners.load.prompts.server_python import ServerPython
from runners.load.prompts.sources import prompt_source
from runners.registry import make_runner
from search_spaces.study_file.load import parse_study

# Stands in for `sglang.benchmark.serving`: a parser inside the function that would run the
# benchmark, and a data set for each shape of prompt.
SERVING = """
    import argparse, random
    import numpy as np
    def run_benchmark(args):
        raise AssertionError("the benchmark was run")
    def cli_main():
        parser = argparse.ArgumentParser()
        for name in ("backend", "model", "dataset-name", "dataset-path", "shape"):
            parser.add_argument("--" + name)
        parser.add_argument("--num-prompts", type=int)
        parser.add_argument("--seed", type=int)
        parser.add_argument("--tokenize-prompt", action="store_true")
        run_benchmark(parser.parse_args())
    class Row:
        def __init__(self, prompt):
            self.prompt = prompt
    def get_dataset(args, tokenizer, model_id):
        print("#Input tokens: 12")
        assert args.backend == "sglang" and model_id == args.model == "some/model"
        rows = []
        for n in range(args.num_prompts):
            word = f"{args.seed} {random.randrange(1000)} {np.randrange(1000)} {n}"
            if args.tokenize_prompt:
                rows.append(Row([n, 1, 2]))
            elif args.dataset_path:
                rows.append(Row([{"role": "user", "content": args.dataset_path + word}]))
            else:
                rows.append(Row(word))
        return rows + rows[:1]
"""
NUMPY = """
    from random import Random
    class random:
        generator = Random()
        seed = generator.seed
    def randrange(n):
        return random.generator.randrange(n)
"""
TRANSFORMERS = """
    class AutoTokenizer:
        @staticmethod
        def from_pretrained(path, trust_remote_code):
            return object()
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    package = tmp_path / "environment" / "sglang" / "benchmark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "serving.py").write_text(textwrap.dedent(SERVING))
    (package.parent.parent / "numpy.py").write_text(textwrap.dedent(NUMPY))
    (package.parent.parent / "transformers.py").write_text(textwrap.dedent(TRANSFORMERS))
    env = os.environ | {"PYTHONPATH": str(tmp_path / "environment")}
    return ServerPython((sys.executable,), "some/model", env)


def select(name, server, count=3, **more):
    return prompt_source(((name, 1.0),), server=server, **more).select(count, 0)


def test_texts_ids_and_chats(server, tmp_path):
    texts = select("sglang:sharegpt?num-prompts=3", server)
    assert all(prompt.text.startswith("42 ") for prompt in texts)
    assert {p.id for p in texts} == {f"sglang:sharegpt?num-prompts=3/{n:04d}" for n in range(3)}
    assert texts == select("sglang:sharegpt?num-prompts=3", server)
    ids = select("sglang:random-ids", server)
    assert all(prompt.input_ids[1:] == (1, 2) for prompt in ids)
    [chat] = select(
        "sglang:openai?dataset-path=chats.jsonl&num_prompts=1&seed=7", server, 1, base_dir=tmp_path
    )
    [(role, content)] = chat.messages
    assert role == "user"
    assert content.startswith(f"{tmp_path}/chats.jsonl7 ")


def test_what_sglang_refuses_is_passed_on(server):
    with pytest.raises(
        PromptFileError, match=r"unrecognized arguments: --bogus 1.*its options are"
    ):
        select("sglang:random-ids?bogus=1", server)


def test_without_an_environment():
    with pytest.raises(PromptFileError, match="needs an environment with SGLang"):
        select("sglang:random-ids", None)


def test_without_sglang(tmp_path):
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(PromptFileError, match=r"could not be loaded with .*No module named"):
        select("sglang:random-ids", ServerPython((sys.executable, "-S"), "m", env))


@pytest.mark.sglang
@pytest.mark.sglang_long
def test_with_the_real_sglang(tmp_path):
    python = os.environ.get("TUNER_SGLANG_PYTHON")
    if not python:
        pytest.skip("TUNER_SGLANG_PYTHON does not name the Python of an SGLang environment")
    models = Path(python).absolute().parents[2] / "models"
    if not (models / "tiny").exists():
        pytest.skip(f"no tiny model in {models}; `make sglang-cpu` makes one")
    server = ServerPython((python,), str(models / "tiny"))
    options = "random-input-len=64&random-range-ratio=1&num-prompts=20"
    ids = select(f"sglang:random-ids?{options}", server, 20)
    assert {len(prompt.input_ids) for prompt in ids} == {64}
    chats = [
        {
            "conversations": [
                {"from": "human", "value": f"What is the number {n} good for?"},
                {"from": "gpt", "value": "It is good for counting."},
            ]
        }
        for n in range(5)
    ]
    (tmp_path / "chats.json").write_text(json.dumps(chats))
    asked = select("sglang:sharegpt?dataset-path=chats.json", server, 5, base_dir=tmp_path)
    assert {prompt.text for prompt in asked} == {
        chat["conversations"][0]["value"] for chat in chats
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [("", None), ("&bogus=1", "unrecognized arguments"), ("&shape=x&num-prompts=4", "has only 4")],
)
def test_a_study_loads_its_data_sets_before_any_launch(server, tmp_path, options, says):
    study = parse_study(
        "study: s\nmodel: {path: some/model}\nspace: {speculation: [{algorithm: none}]}\n"
        f"server: {{python: {sys.executable}, env: {{PYTHONPATH: {server.env['PYTHONPATH']}}}}}\n"
        f"workload:\n  prompts: {{'sglang:random-ids?seed=1{options}': 1}}\n  output_tokens: 8\n"
        "budget: {launches: 1}\nrunner: simulated\n",
        "s.yaml",
    )
    found = make_runner("simulated", study, seed=0, log_dir=tmp_path).check()
    if says is None:
        assert found is None
    else:
        assert found.startswith("workload.prompts: ")
        assert says in found
