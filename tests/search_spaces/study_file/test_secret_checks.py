"""Literal secrets in study files are refused and never shown."""

import json

import pytest

from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import parse_study

from ..conftest import study_dict

WORD = "Zq9Zq9Zq9Zq9Zq9Zq9Zq9Zq9"
CHAIN = {"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}
SERVE = "python -m sglang.launch_server --model-path"


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"server": {"flags": {"api_key": WORD}}}, "server.flags.api_key",
         "write `api-key: $SGLANG_API_KEY`"),
        ({"server": {"env": {"HF_TOKEN": WORD}}}, "server.env.HF_TOKEN",
         "write `HF_TOKEN: $HF_TOKEN`"),
        ({"server": {"env": {"http_proxy": f"http://me:{WORD}@proxy:80"}}}, "server.env.http_proxy",
         "Contains a secret"),
        ({"server": {"flags": {"tool-server": f"https://t/?k=hf_{WORD}"}}},
         "server.flags.tool-server", "Contains a secret"),
        ({"server": {"prefix": ["env", f"HF_TOKEN={WORD}"]}}, "server.prefix[1]", "`NAME: $NAME`"),
        ({"space": {"speculation": [CHAIN], "env": {"MY_SECRET": [None, WORD]}}},
         "space.env.MY_SECRET[1]", "write `MY_SECRET: $MY_SECRET`"),
        ({"space": {"speculation": [CHAIN | {"flags": {"tool-server": [f"a:hf_{WORD}"]}}]}},
         "space.speculation[0].flags.tool-server[0]", "Contains a secret"),
        ({"production": {"command": f"HF_TOKEN={WORD} {SERVE} org/target"}}, "production.command",
         "write `HF_TOKEN=$HF_TOKEN`"),
        ({"production": {"command": f"{SERVE} org/target --api-key={WORD}"}}, "production.command",
         "write `--api-key $SGLANG_API_KEY`"),
        ({"model": {"path": "m/target", "draft": f"https://me:{WORD}@hub/d"}}, "", "or password"),
    ],
)  # fmt: skip
def test_literal_secrets_are_refused(changes, key, says):
    text = json.dumps(study_dict(**changes), indent=1)
    with pytest.raises(StudyFileError) as caught:
        parse_study(text, "s.yaml")
    found = [p for p in caught.value.problems if "stored with the results" in p.message]
    assert [p.key for p in found] == [key]
    assert says in found[0].message
    assert found[0].line is not None
    assert WORD not in str(caught.value)
    # What an older version has stored can still be read, resumed and exported.
    parse_study(text, "s.yaml", stored=True)


def test_a_token_in_a_comment_is_refused():
    text = json.dumps(study_dict(), indent=1) + f"\n# hf_{WORD}\n"
    with pytest.raises(StudyFileError, match="Looks like an access token") as caught:
        parse_study(text, "s.yaml")
    assert caught.value.problems[0].line == text.count("\n")


def test_references_and_harmless_values_are_accepted():
    server = {
        "flags": {"api-key": "${MINE}", "tool-server": "https://me@host:80/x", "tp-size": 1},
        "env": {"HF_TOKEN": "$HF_TOKEN", "DB_PASSWORD": "", "MY_SECRET": None},
    }
    model = {"path": "/models/sk-learn-text-model-of-2026-01-01", "draft": "org/hf_llama_3_1_8b"}
    command = f'HF_TOKEN="$HF_TOKEN" {SERVE} {model["path"]} --api-key $K'
    production = {"command": command}
    text = json.dumps(study_dict(server=server, model=model, production=production))
    assert parse_study(text, "s.yaml").production is not None
