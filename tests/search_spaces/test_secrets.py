from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.flags.options import VERSIONS, options
from search_spaces.secrets import (
    SECRET_FLAGS,
    is_export_only,
    is_reference,
    is_secret,
    redact,
    redact_text,
    reference,
)


@pytest.mark.parametrize(
    "name",
    [
        "api-key", "--api-key", "admin_api_key", "ssl-keyfile-password", "HF_TOKEN", "HFTOKEN",
        "HUGGING_FACE_HUB_TOKEN", "MY_TOKEN_2", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID",
        "OPENAI_API_KEY", "WANDB_APIKEY", "DB_PASSWORD", "PGPASSWORD", "CLIENT_SECRET", "secret",
        "GOOGLE_APPLICATION_CREDENTIALS", "SGLANG_API_KEY",
    ],
)  # fmt: skip
def test_a_secret(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer-path", "max-total-tokens", "ssl-certfile", "TOKENIZERS_PARALLELISM",
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION", "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "SGLANG_INIT_NEW_TOKEN_RATIO",
        "NCCL_P2P_LEVEL", "MAX_TOKEN", "MAX_NEW_TOKEN", "KEY", "PATH",
    ],
)  # fmt: skip
def test_no_secret(name):
    assert not is_secret(name)


def test_sglangs_own_options_that_hold_secrets():
    """Whatever a version calls a key or a password is known here."""
    names = {option.name for version in VERSIONS for option in options(version).values()}
    held = {n for n in names if n.endswith(("api-key", "password", "secret", "access-key"))}
    assert held == SECRET_FLAGS


@pytest.mark.parametrize("flag", ["host", "--port", "api-key", "ssl-certfile", "ssl_keyfile"])
def test_export_only_flags(flag):
    assert is_export_only(flag)
    assert not is_export_only("tp-size")


def test_references_replace_secrets():
    assert redact("api-key", "sk-1") == "$SGLANG_API_KEY"
    assert redact("--ssl-keyfile-password", "x") == "$SGLANG_SSL_KEYFILE_PASSWORD"
    assert redact("HF_TOKEN", "hf_x") == "$HF_TOKEN"
    assert redact("api-key", "${MINE}") == "${MINE}"
    assert redact("api-key", None) is None
    assert redact("tp-size", 8) == 8
    assert not is_reference("$A/b")


@given(st.sampled_from(["api-key", "HF_TOKEN", "DB_PASSWORD"]), st.text(min_size=1))
def test_redaction_is_idempotent_and_keeps_nothing(name, value):
    kept = redact(name, value)
    assert is_reference(kept)
    assert redact(name, kept) == kept
    assert is_reference(reference(name))


def test_secrets_inside_of_a_text():
    text = "--export=ALL,HF_TOKEN=abc,A=1 https://x/?t=hf_0123456789abcdef0123 NCCL_DEBUG=INFO"
    assert redact_text(text) == (
        "--export=ALL,HF_TOKEN=$HF_TOKEN,A=1 https://x/?t=$TOKEN NCCL_DEBUG=INFO"
    )
    assert redact_text(redact_text(text)) == redact_text(text)
