"""Configurations of the models that the shipped studies name, as far as SGLang's argument checks
read them: architecture, attention and experts, no weights and no tokenizer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from search_spaces.study_file.study import Study

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
_MLA = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
_DEEPSEEK = _MLA | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_group": 8,
    "topk_group": 4,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
}
_KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": _MLA
    | {
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "n_routed_experts": 384,
        "n_group": 1,
        "topk_group": 1,
        "vocab_size": 163840,
        "num_nextn_predict_layers": 0,
    },
    "vision_config": {},
}
_QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}

_TARGETS: dict[str, dict[str, Any]] = {
    "moonshotai/Kimi-K2.5": _KIMI,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA,
    "deepseek-ai/DeepSeek-V3-0324": _DEEPSEEK,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": _QWEN,
}
_EAGLE3_DRAFT = _LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}


def with_local_models(study: Study, folder: Path) -> Study:
    """The study with its models in `folder`, where their configurations are written."""
    paths = {"path": _write(folder / "target", _TARGETS[study.model.path])}
    if study.model.draft is not None:
        paths["draft"] = _write(folder / "draft", _EAGLE3_DRAFT)
    return study.model_copy(update={"model": study.model.model_copy(update=paths)})


def _write(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)
