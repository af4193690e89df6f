"""Makes tiny models that the real SGLang serves on a CPU; runs in the server's environment.

    python make_models.py DIR

- `tiny`: a 4-layer Llama with random weights, the target.
- `noisy`: `tiny` plus noise: a STANDALONE draft with partial acceptance (about 2.5 at 3 steps).
- `draft`: a one-layer Llama of its own weights: a STANDALONE draft that is hardly ever accepted.
- `eagle3`: a one-layer EAGLE-3 head for `tiny`, random as well.

Weights come from fixed seeds, so the models are the same wherever they are made.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
DRAFT_VOCABULARY = 512
HIDDEN = 256
LAYERS = 4
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 64
INTERMEDIATE = 512
CONTEXT = 2048
DRAFT_NOISE = 0.05
"""Relative noise of `noisy`; 0 makes every draft of a long prompt accepted."""

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Weights = dict[str, torch.Tensor]


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Writes one of a model's JSON files."""
    path.write_text(json.dumps(data, indent=1) + "\n")


def write_tokenizer(folder: Path) -> None:
    """Trains a byte-level BPE on torch's own sources, which are there wherever torch is."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted((Path(torch.__file__).parent / "nn" / "modules").glob("*.py"))[:12]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 4,
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((path.read_text(errors="ignore") for path in sources), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": CONTEXT,
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})


def write_config(folder: Path, architecture: str, layers: int, **more: object) -> None:
    """Writes `config.json` of a Llama of our size."""
    write_json(
        folder / "config.json",
        {
            "architectures": [architecture],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            **more,
        },
    )


def write_weights(folder: Path, weights: Weights) -> None:
    """Saves weights as bfloat16, integers and masks as they are."""
    save_file(
        {
            name: value.to(torch.bfloat16).contiguous() if value.is_floating_point() else value
            for name, value in weights.items()
        },
        str(folder / "model.safetensors"),
        metadata={"format": "pt"},
    )


def random_layer(prefix: str, inputs: int, generator: torch.Generator) -> Weights:
    """One decoder layer whose attention reads `inputs` features."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.05

    return {
        prefix + "self_attn.q_proj.weight": normal(HEADS * HEAD_DIM, inputs),
        prefix + "self_attn.k_proj.weight": normal(KV_HEADS * HEAD_DIM, inputs),
        prefix + "self_attn.v_proj.weight": normal(KV_HEADS * HEAD_DIM, inputs),
        prefix + "self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD_DIM),
        prefix + "mlp.gate_proj.weight": normal(INTERMEDIATE, HIDDEN),
        prefix + "mlp.up_proj.weight": normal(INTERMEDIATE, HIDDEN),
        prefix + "mlp.down_proj.weight": normal(HIDDEN, INTERMEDIATE),
        prefix + "input_layernorm.weight": torch.ones(HIDDEN),
        prefix + "post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def make_llama(folder: Path, layers: int, seed: int) -> None:
    """A Llama with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    write_config(folder, "LlamaForCausalLM", layers)
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * 0.1,
    }
    for index in range(layers):
        weights.update(random_layer(f"model.layers.{index}.", HIDDEN, generator))
    write_weights(folder, weights)


def make_eagle3(folder: Path, seed: int) -> None:
    """An EAGLE-3 head with a reduced draft vocabulary.

    A target with fewer than 6 layers must name its auxiliary layers: SGLang's default
    (2, L/2, L-3) collides there (0.5.23).
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    write_config(
        folder,
        "LlamaForCausalLMEagle3",
        1,
        draft_vocab_size=DRAFT_VOCABULARY,
        target_hidden_size=HIDDEN,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    )
    generator = torch.Generator().manual_seed(seed)
    in_draft = torch.zeros(VOCABULARY, dtype=torch.bool)
    in_draft[:DRAFT_VOCABULARY] = True
    weights = random_layer("midlayer.", 2 * HIDDEN, generator) | {
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN, generator=generator) * 0.05,
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(DRAFT_VOCABULARY, HIDDEN, generator=generator) * 0.1,
        "d2t": torch.zeros(DRAFT_VOCABULARY, dtype=torch.int64),
        "t2d": in_draft,
    }
    write_weights(folder, weights)


def make_noisy(folder: Path, target: Path, noise: float, seed: int) -> None:
    """A copy of `target` whose matrices carry noise relative to their spread."""
    shutil.copytree(target, folder, dirs_exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {}
    for name, value in load_file(str(target / "model.safetensors")).items():
        if value.dim() > 1:
            exact = value.float()
            spread = exact.std() * noise
            weights[name] = exact + torch.randn(exact.shape, generator=generator) * spread
        else:
            weights[name] = value
    write_weights(folder, weights)


def main(root: Path) -> None:
    """Makes all models under `root`."""
    make_llama(root / "tiny", LAYERS, seed=0)
    make_noisy(root / "noisy", root / "tiny", DRAFT_NOISE, seed=5)
    make_llama(root / "draft", 1, seed=1)
    make_eagle3(root / "eagle3", seed=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
