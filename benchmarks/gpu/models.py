"""Make the models and prompts of the GPU benchmarks, without downloads.

    python benchmarks/gpu/models.py FOLDER            # configurations only: for dummy weights
    python benchmarks/gpu/models.py FOLDER --weights  # also weights; needs SGLang's environment

- `target`: the shape of Llama-3.1-8B; `draft`: a one-layer EAGLE-3 draft of it. Both have no
weights
  and are served with `--load-format dummy`.
- `small`: a quarter of the width and half of the depth, with random weights. `small-01`, `small-02`
  and `small-05`: the same with noise of 1, 2 and 5 % of each matrix' spread, as drafts that are
  partly accepted (`--weights`, 3 GB).
- `prompts.jsonl`: random token ids. The tokenizer has one word per id, so requests carry ids.

Weights and prompts come from fixed seeds.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path
from typing import Any

VOCABULARY = 128256
PROMPTS = 1024
PROMPT_TOKENS = 128
NOISES = {"small-01": 0.01, "small-02": 0.02, "small-05": 0.05}

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "5.12.1",  # else each load warns of another model's tokenizer
}
DRAFT = TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
    "target_hidden_size": TARGET["hidden_size"],
}
SMALL = TARGET | {
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 16,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def describe(folder: Path, config: dict[str, Any]) -> None:
    """Write configuration and tokenizer of a model."""
    # No word is the beginning of a special token: "w1" would split "w128255".
    words = {"<s>": 0, "</s>": 1, "<unk>": 2} | {f"w{n}": n for n in range(3, VOCABULARY)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    written = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in written.items():
        (folder / name).write_text(json.dumps(data, separators=(",", ":")))


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of `small`."""
    hidden, inner = SMALL["hidden_size"], SMALL["intermediate_size"]
    wide = SMALL["num_attention_heads"] * SMALL["head_dim"]
    narrow = SMALL["num_key_value_heads"] * SMALL["head_dim"]
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, hidden),
        "lm_head.weight": (VOCABULARY, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(SMALL["num_hidden_layers"]):
        of_layer = {
            "self_attn.q_proj": (wide, hidden),
            "self_attn.k_proj": (narrow, hidden),
            "self_attn.v_proj": (narrow, hidden),
            "self_attn.o_proj": (hidden, wide),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        found |= {f"model.layers.{layer}.{name}.weight": s for name, s in of_layer.items()}
    return found


def weigh(folder: Path) -> None:
    """Write the weights of `small` and its noisy copies. Needs torch and safetensors."""
    import torch  # noqa: PLC0415 - not needed for dummy weights
    from safetensors.torch import save_file  # noqa: PLC0415 - likewise

    generator = torch.Generator().manual_seed(0)
    spread = {"model.embed_tokens.weight": 1.0, "lm_head.weight": 0.1}
    exact = {
        name: torch.randn(shape, generator=generator) * spread.get(name, 0.02)
        if len(shape) > 1
        else torch.ones(shape)
        for name, shape in shapes().items()
    }
    for copy, noise in {"small": 0.0, **NOISES}.items():
        generator.manual_seed(5)
        weights = {
            name: value + torch.randn(value.shape, generator=generator) * value.std() * noise
            if noise and value.dim() > 1
            else value
            for name, value in exact.items()
        }
        save_file(
            {name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()},
            str(folder / copy / "unfinished"),
            metadata={"format": "pt"},
        )
        # Only whole files have their name: by it `run.sh` knows that they are there.
        (folder / copy / "unfinished").rename(folder / copy / "model.safetensors")


def write_prompts(path: Path) -> None:
    """Write prompts without a common beginning."""
    draw = random.Random(1)
    lines = (
        json.dumps({"input_ids": [draw.randrange(100, VOCABULARY) for _ in range(PROMPT_TOKENS)]})
        for _ in range(PROMPTS)
    )
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", action="store_true")
    args = parser.parse_args()
    models = args.folder / "models"
    describe(models / "target", TARGET)
    describe(models / "draft", DRAFT)
    write_prompts(args.folder / "prompts.jsonl")
    if args.weights:
        if shutil.disk_usage(args.folder).free < 8e9:
            parser.error(f"{args.folder}: 8 GB must be free")
        for name in ("small", *NOISES):
            describe(models / name, SMALL)
        weigh(models)


if __name__ == "__main__":
    main()
