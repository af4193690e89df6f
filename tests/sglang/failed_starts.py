"""Starts on which the real SGLang fails, by the name of their recording.

`tests/data/failed/expected.json` has the expected failures, also for the fast suite. `models` is
the folder of the tiny models, `broken` the folder of the broken models that are made here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class FailedStart:
    """One start.

    Attributes:
        flags: Flags in addition to those of the study `tiny`.
        model: Target model.
        without: Flags of the study that are left out.
        limit: Arguments of the shell's `ulimit` before the start.
        whoever_is_first: Launcher and scheduler both fail, so the exit code is 1 or 137.
    """

    flags: dict[str, Any] = field(default_factory=dict)
    model: str = "{models}/tiny"
    without: tuple[str, ...] = ()
    limit: str | None = None
    whoever_is_first: bool = False


def _speculation(
    algorithm: str,
    num_steps: int | None,
    topk: int | None,
    num_draft_tokens: int | None,
    draft: str | None = "{models}/eagle3",
    **more: Any,
) -> FailedStart:
    flags = {
        "speculative-algorithm": algorithm,
        # SGLang's other name for it: the runner sets the first one, by `model.draft`.
        "speculative-draft-model": draft,
        "speculative-num-steps": num_steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": num_draft_tokens,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    return FailedStart(given | {name.replace("_", "-"): value for name, value in more.items()})


RECORDED_BEFORE = {
    "unknown_flag": FailedStart({"speculative-eagle-topkk": 2}),
    "bad_choice": FailedStart({"attention-backend": "nosuch"}),
    "bad_model_path": FailedStart(model="{models}/nosuch"),
    "hf_repo_offline": FailedStart(model="nosuch-owner/nosuch-model"),
    "bad_draft_path": _speculation("EAGLE3", 3, 1, 4, draft="{models}/nosuch"),
    "context_too_long": FailedStart({"context-length": 100000}),
    "bad_spec_algo": _speculation("EAGLE9", 3, 1, 4),
    "spec_steps_none_topk_set": _speculation("EAGLE3", None, 2, None),
    "spec_steps_only": _speculation("EAGLE3", 3, None, None),
    "spec_steps_topk_no_draft_tokens": _speculation("EAGLE3", 3, 2, None),
    "spec_topk_gt1_page16": _speculation("EAGLE3", 3, 2, 6, page_size=16),
    "eagle_no_draft": _speculation("EAGLE3", None, None, None, draft=None),
    "eagle_torch_native_backend": _speculation("EAGLE3", 3, 2, 6, attention_backend="torch_native"),
    "eagle_shape_mismatch": _speculation("EAGLE3", 3, 1, 4, draft="{broken}/reads_a_layer_too_far"),
    "spec_tree_too_large": _speculation("EAGLE3", 2, 2, 16),
    "spec_narrow_tree": _speculation("EAGLE3", 4, 2, 3),
}

OF_OUR_OWN_FINDING = {
    # Files of models.
    "weights_cut_off": FailedStart(model="{broken}/weights_cut_off"),
    "weights_missing": FailedStart(model="{broken}/weights_missing"),
    "weights_link_leads_nowhere": FailedStart(model="{broken}/weights_link_leads_nowhere"),
    "weights_of_other_shapes": FailedStart(model="{broken}/weights_of_other_shapes"),
    "config_missing": FailedStart(model="{broken}/config_missing"),
    "config_no_json": FailedStart(model="{broken}/config_no_json"),
    "model_type_unknown": FailedStart(model="{broken}/model_type_unknown"),
    "architecture_unknown": FailedStart(model="{broken}/architecture_unknown"),
    "tokenizer_missing": FailedStart(model="{broken}/tokenizer_missing", whoever_is_first=True),
    "draft_weights_cut_off": _speculation("STANDALONE", 2, 1, 3, draft="{broken}/weights_cut_off"),
    "draft_of_other_vocabulary": _speculation(
        "STANDALONE", 2, 1, 3, draft="{broken}/other_vocabulary"
    ),
    "draft_of_other_hidden_states": _speculation(
        "EAGLE3", 2, 1, 3, draft="{broken}/reads_two_layers"
    ),
    "target_as_eagle3_draft": _speculation("EAGLE3", 2, 1, 3, draft="{models}/tiny"),
    # Values of flags.
    "bad_integer": FailedStart({"page-size": "x"}),
    "ambiguous_option": FailedStart({"cuda-graph-bs": 1}),
    "override_no_json": FailedStart({"json-model-override-args": "{x"}),
    "loader_config_no_json": FailedStart({"model-loader-extra-config": "{x"}),
    "chat_template_missing": FailedStart({"chat-template": "/nosuch/template.jinja"}),
    "quantization_unknown": FailedStart({"quantization": "nosuch"}),
    "quantization_not_of_these_weights": FailedStart({"quantization": "awq"}),
    "quantization_not_of_this_dtype": FailedStart({"quantization": "fp8"}),
    "page_size_zero": FailedStart({"page-size": 0}),
    "chunk_not_of_pages": FailedStart({"page-size": 16, "chunked-prefill-size": 7}),
    "tp_size_zero": FailedStart({"tp-size": 0}),
    "lora_missing": FailedStart({"enable-lora": True, "lora-paths": "/nosuch/lora"}),
    "adaptive_steps_no_candidate": _speculation("EAGLE3", 2, 1, 3, speculative_adaptive=True),
    "dflash_on_a_cpu": _speculation("DFLASH", 2, 1, 3, draft="{models}/noisy"),
    "backend_not_installed": FailedStart({"attention-backend": "flashinfer"}),
    "backend_of_other_gpus": FailedStart({"attention-backend": "fa3"}),
    # The machine.
    "tp_2_on_one_node": FailedStart({"tp-size": 2}),
    "no_gpu": FailedStart({"device": "cuda"}),
    # Not 0, where memory that another process gives back meanwhile would make it serve.
    "no_memory_left_for_kv": FailedStart(
        {"mem-fraction-static": -1}, without=("max-total-tokens",)
    ),
    "kv_pool_of_ten_tokens": FailedStart({"max-total-tokens": 10}),
    "too_many_files": FailedStart(limit="-n 40"),
    "address_space_used_up": FailedStart({"max-total-tokens": 2_000_000}, limit="-v 2500000"),
}

STARTS = RECORDED_BEFORE | OF_OUR_OWN_FINDING


def make_broken_models(models: Path, broken: Path) -> None:
    """Copies of the tiny models that something is wrong with."""

    def copy(name: str, of: str = "tiny", **config: Any) -> Path:
        folder = broken / name
        shutil.copytree(models / of, folder)
        if config:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    weights = copy("weights_cut_off") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50_000])
    (copy("weights_missing") / "model.safetensors").unlink()
    weights = copy("weights_link_leads_nowhere") / "model.safetensors"
    weights.unlink()
    weights.symlink_to("../blobs/nosuch")  # as in a cache whose files were cleaned away
    copy("weights_of_other_shapes", hidden_size=128)
    (copy("config_missing") / "config.json").unlink()
    (copy("config_no_json") / "config.json").write_text("{")
    copy("model_type_unknown", model_type="nosuch")
    copy("architecture_unknown", architectures=["NoSuchForCausalLM"])
    for path in sorted(copy("tokenizer_missing").glob("tokenizer*")):
        path.unlink()
    copy("other_vocabulary", "noisy", vocab_size=512)
    # The tiny target has four layers: two of the three are read.
    _reading(copy("reads_a_layer_too_far", "eagle3"), [0, 1, 9])
    _reading(copy("reads_two_layers", "eagle3"), [0, 1])


def _reading(draft: Path, layers: list[int]) -> None:
    path = draft / "config.json"
    eagle = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": layers}}
    path.write_text(json.dumps(json.loads(path.read_text()) | eagle))
