"""What `test_rules` says breaks a rule, and what does not, asked of SGLang 0.5.23 as if on GPUs.

No launch: arguments are parsed, resolved and checked (about 30 s).
"""

from __future__ import annotations

import pytest

from .test_rules import BROKEN, with_flags
from .test_rules_against_sglang import argv_of, asked_of_sglang, gpu_study, launch

pytestmark = pytest.mark.sglang

ASKED = {
    name: case
    for name, case in BROKEN.items()
    if not case[0].startswith("nccl") and "device" not in case[2]
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    study = gpu_study("grid", tmp_path_factory.mktemp("models"))
    asked = {}
    for name, (_, bad, flags, good) in ASKED.items():
        for kind, configuration in (("bad", bad), ("good", good)):
            whole = with_flags(configuration, {"tp-size": 8, **flags})
            env = {variable: value for variable, value in whole.env if value is not None}
            gpu = "blackwell" if flags.get("attention-backend") == "trtllm_mla" else "hopper"
            asked[name, kind] = launch(argv_of(study, whole), gpu=gpu, env=env)
    return dict(zip(asked, asked_of_sglang(list(asked.values())), strict=True))


@pytest.mark.parametrize("name", ASKED)
def test_sglang_refuses_what_the_rule_does_and_takes_its_neighbour(name, answers):
    assert answers[name, "bad"]["error"].startswith(("ValueError", "AssertionError"))
    assert "error" not in answers[name, "good"]
