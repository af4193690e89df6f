"""Facts about models by name: MTP layers, public drafts, and short names."""

from __future__ import annotations

import json
import re
from pathlib import Path

# Names of published models with MTP layers. A distilled model has its teacher's name, but not its
# layers.
_MTP_NAMES = re.compile(
    r"deepseek-(v3|r1|v4|chat-v3)(?!.*(distill|qwen|llama))"
    r"|glm-(4\.[5-9]|5)(?!\.?\d*v\b)"
    r"|qwen3-next|qwen3\.[5-9]|mimo-(7b|v2)|longcat-flash|ernie-4\.5-\d+b-a\d+b"
    r"|ling-(mini|flash)-2|ling-2\.5|ring-2\.5|step-3\.5|exaone-moe|k-exaone|nemotron-3-(super|ultra)"
)
_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
# SGLang 0.5.23 uses the MTP layers of these as the draft (configs/model_config.py:1010-1210).
# fmt: off
_MTP_ARCHITECTURES = {
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM", "MiMoForCausalLM",
    "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "BailingMoeV2ForCausalLM",
    "BailingMoeV2_5ForCausalLM", "Ernie4_5_MoeForCausalLM", "ExaoneMoEForCausalLM",
    "ExaoneMoeForCausalLM", "Glm5NextForConditionalGeneration", "HYV3ForCausalLM",
    "HYV4ForCausalLM", "LongcatFlashForCausalLM", "Step3p5ForCausalLM",
    "Step3p7ForConditionalGeneration",
}
# fmt: on

_DRAFTS = {
    "kimi-k2-instruct": "AQ-MedAI/Kimi-K2-Instruct-eagle3",
    "kimi-k2.5": "lightseekorg/kimi-k2.5-eagle3",
    "llama-3.1-8b-instruct": "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
    "llama-3.3-70b-instruct": "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge",
    "llama-4-scout-17b-16e-instruct": (
        "lmsys/SGLang-EAGLE3-Llama-4-Scout-17B-16E-Instruct-SpecForge"
    ),
    "llama-4-maverick-17b-128e-instruct": (
        "lmsys/sglang-EAGLE3-Llama-4-Maverick-17B-128E-Instruct-v1"
    ),
    "qwen3-30b-a3b-instruct-2507": (
        "lmsys/SGLang-EAGLE3-Qwen3-30B-A3B-Instruct-2507-SpecForge-Nex"
    ),
    "qwen3-235b-a22b-instruct-2507": (
        "lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge-Meituan"
    ),
    "qwen3-coder-30b-a3b-instruct": "lmsys/SGLang-EAGLE3-Qwen3-Coder-30B-A3B-Instruct-SpecForge",
    "qwen3-coder-480b-a35b-instruct": (
        "lmsys/SGLang-EAGLE3-Qwen3-Coder-480B-A35B-Instruct-SpecForge-EigenAI"
    ),
    "gpt-oss-20b": "zhuyksir/EAGLE3-gpt-oss-20b-bf16",
    "gpt-oss-120b": "lmsys/EAGLE3-gpt-oss-120b-bf16",
}
"""Public EAGLE-3 drafts by model name, from the shipped studies and from SGLang's SpecBundle table
(docs, `supported_models`). Models with MTP layers need no draft."""

_GENERIC = {"model", "models", "weights", "checkpoint", "snapshots", "data", "hf", "merged", "."}
_TAIL = re.compile(r"-(instruct|chat|it|hf|base)$")


def model_name(path: str) -> str:
    """Return a model's name, from `org/Name`, a folder, or a Hugging Face cache folder."""
    parts = [part for part in path.split("/") if part]
    for part in parts:
        if part.startswith("models--"):
            return part.rsplit("--", 1)[-1]
    named = [part for part in reversed(parts) if part.lower() not in _GENERIC]
    return named[0] if named else "model"


def short_name(path: str) -> str:
    """Return a study name for a model: `kimi-k2.5`, `llama-3.1-8b`."""
    name = re.sub(r"[^a-z0-9._-]+", "-", model_name(path).lower()).strip("-._")
    name = _TAIL.sub("", name.removeprefix("meta-"))
    name = name.removesuffix(".yaml").removesuffix(".yml")[:60].strip("-._")
    return name or "model"


def has_mtp_layers(path: str) -> str | None:
    """Return why a model seems to have MTP layers (`NEXTN` without a draft), or `None`."""
    config = _config(path)
    if config is not None:
        layers = [config[key] for key in _MTP_KEYS if isinstance(config.get(key), int)]
        found = config.get("architectures")
        architecture = found[0] if isinstance(found, list) and found else ""
        if architecture not in _MTP_ARCHITECTURES or (layers and not any(layers)):
            return None
        return f"the architecture in config.json, {architecture}, has MTP layers"
    name = model_name(path).lower().replace("_", "-")
    return "models of this name have MTP layers" if _MTP_NAMES.search(name) else None


def known_draft(path: str) -> str | None:
    """Return a public EAGLE-3 draft of a model, or `None`."""
    name = model_name(path).lower().removeprefix("meta-")
    # The FP8 model uses the same draft, as in SGLang's own tests.
    return _DRAFTS.get(name.removesuffix("-fp8"))


def guess_draft_algorithm(draft: str) -> str:
    """Guess the algorithm of a draft by its name."""
    name = draft.lower().replace("_", "-")
    for word, algorithm in (
        ("dflash", "DFLASH"),
        ("dspark", "DSPARK"),
        ("nextn", "NEXTN"),
        ("mtp", "NEXTN"),
        ("eagle3", "EAGLE3"),
        ("eagle-3", "EAGLE3"),
        ("eagle", "EAGLE"),
    ):
        if word in name:
            return algorithm
    return "STANDALONE"


def _config(path: str) -> dict[str, object] | None:
    try:
        config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    return {**inner, **config} if isinstance(inner, dict) else config
