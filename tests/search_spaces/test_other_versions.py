"""Legal points of the shipped studies asked of older versions of SGLang.

Their wheels are fetched, and run on top of the installed environment: enough for the handling of
arguments, which is all that is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.process.environment import LocalEnvironment
from runners.sglang.preflight.ask import ask, gpu_named, launch_arguments
from runners.sglang.preflight.preflight import points_to_ask
from runners.sglang_cpu import DEFAULT_DIR, CpuServer
from search_spaces.flags.options import options
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study

from .model_configs import with_local_models

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(1800)]

PACKAGES = {
    "0.5.17": ("sglang==0.5.17", "transformers==5.12.1", "tokenizers==0.22.2"),
    "0.5.9": ("sglang==0.5.9",),
}
"""What is laid over the environment. Of 0.5.17 it is the transformers that it is pinned to, whose
configurations it registers anew."""

STUDIES = {"kimi": "rtx pro 6000", "llama-8b": "h200", "qwen": "h200"}

MOST = 100


@pytest.fixture(scope="module", params=PACKAGES)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def answers(version, tmp_path_factory):
    """By study: each point with the answer to it."""
    server = CpuServer(Path(os.environ.get("TUNER_SGLANG_CPU") or DEFAULT_DIR).absolute())
    if not server.python.exists():
        pytest.skip("no SGLang here: make sglang-cpu installs it")
    folder = tmp_path_factory.mktemp(f"sglang-{version}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", folder, *PACKAGES[version]], check=True)
    out = {}
    for name, gpu in STUDIES.items():
        study = with_local_models(load_study(name), folder / "models" / name)
        points = points_to_ask(Space(study), baselines(study).values(), most=MOST)
        found = ask(
            LocalEnvironment(str(server.python)),
            [launch_arguments(study, point) for point in points],
            seconds=200,
            gpu=gpu_named(gpu),
            variables={"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        )
        assert found.version == version
        out[name] = list(zip(points, found.answers, strict=True))
    return out


def test_no_legal_point_of_a_shipped_study_is_refused(version, answers):
    known = options(version)
    for name, found in answers.items():
        for point, answer in found:
            why = answer.refused or answer.unanswered
            lacking = [n for n, value in point.flags if value is not None and n not in known]
            if lacking:  # `unsupported_flags` tells it before
                assert why is not None
                assert why.startswith(f"unrecognized arguments: --{lacking[0]}")
            else:
                assert why is None, (name, point, why)


def test_what_is_asked_for_is_what_would_run(answers):
    for name, found in answers.items():
        for point, answer in found:
            # 0.5.9 has some fields under other names, where nothing is found.
            wanted = {n: v for n, v in answer.rewritten.items() if v[1] is not None}
            assert not wanted, (name, point, wanted)
