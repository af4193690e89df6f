"""Facts about models by name."""

import pytest

from search_spaces.study_file.load import load_study, shipped
from tuner.init.models import guess_draft_algorithm, known_draft


@pytest.mark.parametrize("name", [name for name, _ in shipped()])
def test_drafts_of_shipped_studies_are_known(name):
    study = load_study(name)
    public = study.model.draft is not None and not study.model.draft.startswith(".")
    eagle3 = any(part.algorithm == "EAGLE3" for part in study.space.speculation)
    assert known_draft(study.model.path) == (study.model.draft if public and eagle3 else None)


def test_an_unknown_model_has_no_draft():
    assert known_draft("org/some-model") is None


@pytest.mark.parametrize(
    ("model", "draft"),
    [
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3-235B-A22B-Instruct-2507-SpecForge"),
        ("openai/gpt-oss-120b", "lmsys/EAGLE3-gpt-oss-120b-bf16"),
        ("/models/Llama-3.3-70B-Instruct", "SGLang-EAGLE3-Llama-3.3-70B-Instruct"),
        ("moonshotai/Kimi-K2-Instruct", "AQ-MedAI/Kimi-K2-Instruct-eagle3"),
    ],
)
def test_public_drafts_are_found_by_name(model, draft):
    found = known_draft(model)
    assert draft in found
    assert guess_draft_algorithm(found) == "EAGLE3"
