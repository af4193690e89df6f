"""What goes wrong with the files of models, drafts and tokenizers.

Said by SGLang, `transformers` and `safetensors`, mostly in the same words from 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import re

from runners.sglang.failures.rule import Rule, ignoring_case

_MISSING = ignoring_case(
    r"OSError: .*(connect to 'https?://|is not a local folder|does not appear to have a file)"
    r"|LocalEntryNotFoundError:|RepositoryNotFoundError:|HFValidationError:|GatedRepoError:"
    r"|FileNotFoundError: .*(config|safetensors|model)"
)
_UNREADABLE = ignoring_case(r"PermissionError: .*(config|safetensors|model|tokenizer).*")
_UNKNOWN = re.compile(
    r"^ValueError: (Unrecognized model in|The checkpoint you are trying to load has model type"
    r"|Cannot find model module|Model architectures .* are not supported|No model architectures"
    r"|.* has no SGLang implementation).*",
    re.MULTILINE | re.IGNORECASE,
)
_BAD_CONFIG = ignoring_case(r"OSError: .*the config file at .* is not a valid JSON file.*")
_BAD_WEIGHTS = ignoring_case(
    r".*SafetensorError: .*|RuntimeError: Cannot find any model weights with.*"
    r"|.*UnpicklingError: .*|RuntimeError: PytorchStreamReader failed.*"
)
_OTHER_SHAPES = ignoring_case(
    r"RuntimeError: The size of tensor a .* must match the size of tensor b .*"
    r"|AssertionError: Attempted to load weight .* into parameter .*"
    r"|AssertionError: .*org_vocab_size=.*loaded_weight\.shape.*"
)
_DRAFT_FRAMES = re.compile(
    r"speculative_hook\.py"
    r'|File "[^"]*/speculative/[^"]*", line \d+, in (__init__|_?init\w*)'
)


def of_the_draft(tail: str) -> bool:
    """Whether it is the draft that was being read.

    0.5.17 and 0.5.23 read its configuration in the speculation's hook, 0.5.9 in its worker.
    """
    return _DRAFT_FRAMES.search(tail) is not None


def _drafting(tail: str) -> bool:
    return bool(re.search(r"/speculative/|eagle|draft", tail, re.IGNORECASE))


_LAUNCHER = "arguments"
"""The launcher dies of it, however far its scheduler has come meanwhile."""
_NOT_FOUND = "was not found: check `model.{}`, HF_HUB_OFFLINE and the cache"
_DOWNLOAD = "the files of {} are incomplete or damaged: fetch them again"

MODEL_RULES: tuple[Rule, ...] = (
    Rule(
        "draft_not_found",
        "study",
        _MISSING,
        f"the draft model {_NOT_FOUND.format('draft')}",
        also=of_the_draft,
    ),
    Rule("model_not_found", "study", _MISSING, f"the model {_NOT_FOUND.format('path')}"),
    Rule(
        "model_unreadable",
        "study",
        _UNREADABLE,
        "the user that runs the server may not read the model's files: change their owner or mode",
    ),
    Rule(
        "bad_weights",
        "study",
        _BAD_WEIGHTS,
        _DOWNLOAD.format("the draft"),
        also=of_the_draft,
    ),
    Rule("bad_weights", "study", _BAD_WEIGHTS, _DOWNLOAD.format("the model")),
    Rule("bad_model_config", "study", _BAD_CONFIG, _DOWNLOAD.format("the model")),
    Rule(
        "bad_tokenizer",
        "study",
        re.compile(
            r"^ValueError: Couldn't instantiate the backend tokenizer.*"
            r"|^OSError: Can't load tokenizer for.*",
            re.MULTILINE,
        ),
        "no tokenizer beside the model's weights: add its files, or name them in `tokenizer-path` "
        "under `server.flags`",
        _LAUNCHER,
    ),
    Rule(
        "bad_chat_template",
        "study",
        re.compile(r"^RuntimeError: (Chat|Completion) template .*", re.MULTILINE),
        "correct `chat-template` under `server.flags`",
        _LAUNCHER,
    ),
    Rule(
        "trust_remote_code",
        "study",
        ignoring_case(r".*(pass the argument|set the option) `?trust_remote_code=True.*"),
        "set `trust-remote-code: true` under `server.flags` if you trust the model's code",
    ),
    Rule(
        "unsupported_model",
        "study",
        _UNKNOWN,
        "this version of SGLang cannot serve this model: see `architectures` and `model_type` in "
        "its config.json",
    ),
    Rule(
        "unsupported_quantization",
        "configuration",
        ignoring_case(
            r"ValueError: (Cannot find the config file for \w+"
            r"|.* is not supported for quantization method.*"
            r"|The quantization method \S+ is not supported.*|Quantization method specified .*"
            r"|\S+ quantization is currently not supported.*)"
        ),
        "the model's weights or this device do not go with `quantization` or `dtype`",
    ),
    Rule(
        "context_too_long",
        "study",
        ignoring_case(r"ValueError: .*greater than the derived context_length"),
    ),
    Rule(
        "draft_missing",
        "study",
        ignoring_case(r"has no attribute 'hot_token_id'"),
        "this algorithm needs a draft that was made for it, an EAGLE-3 head: set `model.draft`",
    ),
    Rule(
        "draft_mismatch",
        "study",
        ignoring_case(
            r"RuntimeError: mat1 and mat2 shapes cannot be multiplied.*"
            r"|size mismatch for .*|KeyError: 'embed_tokens\.weight'"
        ),
        "the draft does not fit the target, so no setting of it can run",
        also=_drafting,
    ),
    Rule(
        "draft_mismatch",
        "study",
        _OTHER_SHAPES,
        "the draft's weights do not have the shapes that its config.json says",
        also=of_the_draft,
    ),
    Rule(
        "bad_weights",
        "study",
        _OTHER_SHAPES,
        "the weights do not have the shapes that the model's config.json says",
        also=lambda tail: "load_weights" in tail,
    ),
)
