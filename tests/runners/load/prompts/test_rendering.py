"""The chat-template hook: the helper process, real ones and misbehaving ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from runners.base import RunnerError
from runners.load.checks.tokens import shared_prefixes
from runners.load.prompts.prompts import Prefix, Prompt
from runners.load.prompts.rendering import ChatTemplateRenderer, IdentityRenderer
from runners.load.prompts.server_python import ServerPython

PROMPTS = (Prompt("a", "Hello there"), Prompt("b", "How are you?"))

# Stands in for the `transformers` of a server's environment: one token per byte.
TRANSFORMERS = """
    import os
    class _Tokenizer:
        chat_template = os.environ.get("TEMPLATE") or None
        def encode(self, text, add_special_tokens=True):
            return ([1] if add_special_tokens else []) + list(text.encode())
        def apply_chat_template(self, messages, tokenize, add_generation_prompt):
            assert not tokenize and add_generation_prompt
            return "".join(self.chat_template.format(**message) for message in messages)
    class AutoTokenizer:
        @staticmethod
        def from_pretrained(path, trust_remote_code):
            print("a library that prints")
            if path == "missing":
                raise OSError("no such model: " + path)
            if path == "remote" and not trust_remote_code:
                raise ValueError("needs trust_remote_code")
            with open(os.environ["CALLS"], "a") as calls:
                calls.write(path + "\\n")
            return _Tokenizer()
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    (tmp_path / "transformers.py").write_text(textwrap.dedent(TRANSFORMERS))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("TEMPLATE", "<{role}>{content}<assistant>")
    return tmp_path


def renderer(model_path="model", **more):
    return chat_renderer([sys.executable], model_path, **more)


def chat_renderer(argv, model_path, *, timeout_s=300.0, **more):
    return ChatTemplateRenderer(ServerPython(tuple(argv), model_path, **more), timeout_s=timeout_s)


def test_identity():
    assert IdentityRenderer().render(PROMPTS) == PROMPTS


def test_the_template_is_applied(environment):
    chat = renderer()
    assert chat.used_template is None
    rendered = chat.render(PROMPTS)
    assert [prompt.id for prompt in rendered] == ["a", "b"]
    assert [bytes(prompt.input_ids).decode() for prompt in rendered] == [
        "<user>Hello there<assistant>",
        "<user>How are you?<assistant>",
    ]
    assert all(prompt.text is None for prompt in rendered)
    assert chat.used_template is True


def test_behind_a_command_prefix(environment, monkeypatch, tmp_path):
    # As in a container: another working directory, none of the tuner's files, its own environment.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (elsewhere / "json.py").write_text("raise RuntimeError('the working directory shadows json')")
    chat = chat_renderer(["env", "TEMPLATE=({content})", sys.executable], "model")
    [rendered] = chat.render(PROMPTS[:1])
    assert bytes(rendered.input_ids) == b"(Hello there)"


def test_each_prompt_is_rendered_once(environment):
    chat = renderer()
    first = chat.render(PROMPTS)
    assert chat.render(PROMPTS[::-1]) == first[::-1]
    chat.render((*PROMPTS, Prompt("c", "One more")))
    assert (environment / "calls").read_text() == "model\n" * 2


def test_token_ids_are_left_alone(environment):
    prompt = Prompt("x", input_ids=(1, 2, 3))
    assert renderer().render((prompt,)) == (prompt,)
    assert not (environment / "calls").exists()


def test_without_a_template_it_encodes_and_says_so(environment, monkeypatch, caplog):
    monkeypatch.setenv("TEMPLATE", "")
    chat = renderer()
    [rendered] = chat.render(PROMPTS[:1])
    assert rendered.input_ids == (1, *b"Hello there")
    assert chat.used_template is False
    assert "has no chat template" in caplog.text


def test_trust_remote_code_is_passed_on(environment):
    assert renderer("remote", trust_remote_code=True).render(PROMPTS)
    with pytest.raises(RunnerError, match="needs trust_remote_code"):
        renderer("remote").render(PROMPTS)


def test_a_chat_of_several_turns(environment, monkeypatch):
    turns = (("system", "Be brief."), ("user", "Why?"))
    [rendered] = renderer().render([Prompt("x", messages=turns)])
    assert bytes(rendered.input_ids) == b"<system>Be brief.<assistant><user>Why?<assistant>"
    monkeypatch.setenv("TEMPLATE", "")
    [plain] = renderer().render([Prompt("x", messages=turns)])
    assert plain.input_ids == (1, *b"System: Be brief.\n\nUser: Why?")


@pytest.mark.parametrize("template", ["<{role}>{content}<assistant>", ""])
def test_a_prefix_is_exact_in_token_ids(environment, monkeypatch, template):
    monkeypatch.setenv("TEMPLATE", template)
    prefixes = [Prefix("first prefix, cut somewhere", 9), Prefix("second prefix", 9)]
    prompts = [
        Prompt("a", "Hello", prefix=prefixes[0]),
        Prompt("b", "There", prefix=prefixes[1]),
        Prompt("c", "Where", prefix=prefixes[0]),
        Prompt("d", messages=(("system", "S"), ("user", "U")), prefix=prefixes[0]),
        Prompt("e", input_ids=(7, 8), prefix=prefixes[1]),
        Prompt("f", "Alone"),
    ]
    rendered = {prompt.id: prompt.input_ids for prompt in renderer().render(prompts)}
    assert all(prompt.prefix is None for prompt in renderer().render(prompts))
    assert rendered["e"] == (*b"second pr", 7, 8)
    if template:
        assert bytes(rendered["a"]) == b"<user>first pre\n\nHello<assistant>"
        assert bytes(rendered["d"]) == b"<system>first pre\n\nS<assistant><user>U<assistant>"
        head = len(b"<user>")
    else:
        assert rendered["a"] == (1, *b"first pre\n\nHello")
        head = 1
    shared = shared_prefixes([Prompt(n, input_ids=rendered[n]) for n in ("a", "c")])
    # The prefix, and the line feeds that end it.
    assert shared == {"a": head + 9 + 2, "c": head + 9 + 2}


def test_a_prefix_whose_text_is_too_short(environment):
    with pytest.raises(RunnerError, match="the prefix needs 90 tokens, but its text has 5"):
        renderer().render([Prompt("a", "Hello", prefix=Prefix("short", 90))])


def test_a_template_that_drops_the_first_turn(environment, monkeypatch):
    monkeypatch.setenv("TEMPLATE", "<{role}>")
    with pytest.raises(RunnerError, match="drops the first message"):
        renderer().render([Prompt("a", "Hello", prefix=Prefix("long enough", 3))])


def failing(environment, script, **more):
    fake = environment / "python"
    fake.write_text(f"#!{sys.executable}\n{script}")
    fake.chmod(0o755)
    with pytest.raises(RunnerError) as caught:
        chat_renderer([str(fake)], "model", **more).render(PROMPTS)
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("chat_template", "study")
    assert "model" in failure.message
    return failure.message


def test_a_helper_whose_words_are_not_utf8(environment):
    (environment / "transformers.py").write_text(
        "import os, sys; os.write(2, b'\\xff broken'); sys.exit(1)"
    )
    with pytest.raises(RunnerError, match="broken"):
        renderer().render(PROMPTS)


def test_a_missing_model(environment):
    with pytest.raises(RunnerError, match=r"exit status 1.*no such model: missing"):
        renderer("missing").render(PROMPTS)


def test_no_such_interpreter(environment):
    with pytest.raises(RunnerError, match="could not be started"):
        chat_renderer([str(environment / "nothing")], "model").render(PROMPTS)


def test_a_helper_that_hangs(environment):
    message = failing(environment, "import time; time.sleep(60)", timeout_s=0.5)
    assert "no answer within 0.5 s" in message


@pytest.mark.parametrize(
    "printed",
    ["", "nonsense", "[]", json.dumps({"used_template": True})],
)
def test_an_unreadable_answer(environment, printed):
    assert "invalid " in failing(environment, f"print({printed!r})")


@pytest.mark.parametrize("ids", [[[1]], [[1], []]])
def test_an_incomplete_answer(environment, ids):
    answer = json.dumps({"used_template": True, "input_ids": ids})
    assert "2 prompts gave" in failing(environment, f"print({answer!r})")


@pytest.mark.sglang
def test_with_the_real_transformers(tmp_path):
    python = os.environ.get("TUNER_SGLANG_PYTHON")
    if not python:
        pytest.skip("TUNER_SGLANG_PYTHON does not name the Python of an SGLang environment")
    make = """
        import json, sys
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        folders = dict(zip(("chat", "plain"), sys.argv[1:]))
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = {token: n for n, token in enumerate(["<s>", "</s>", "<|im_start|>", *alphabet])}
        tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
        tokenizer.add_special_tokens(["<s>", "</s>", "<|im_start|>"])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                  "eos_token": "</s>", "chat_template": "{{bos_token}}{% for m in messages %}"
                  "<|im_start|>{{m.role}}:{{m.content}};{% endfor %}<|im_start|>assistant:"}
        for kind, folder in folders.items():
            if kind == "plain":
                del config["chat_template"]
            tokenizer.save(folder + "/tokenizer.json")
            json.dump(config, open(folder + "/tokenizer_config.json", "w"))
            json.dump({"model_type": "llama"}, open(folder + "/config.json", "w"))
    """
    folders = [tmp_path / kind for kind in ("chat", "plain")]
    for folder in folders:
        folder.mkdir()
    subprocess.run([python, "-c", textwrap.dedent(make), *folders], check=True, timeout=120)
    chat = chat_renderer([python], str(tmp_path / "chat"))
    prefix = Prefix("A prefix of many tokens, for it is one byte to a token.", 20)
    many = [Prompt("p", "Why?", prefix=prefix), Prompt("q", "How?", prefix=prefix)]
    # One call: each starts the server's Python, which imports transformers.
    ids, p, q = (prompt.input_ids for prompt in chat.render([*PROMPTS[:1], *many]))
    assert chat.used_template is True
    assert ids[0] == 0  # one begin of sequence, not two
    assert ids.count(0) == 1
    assert ids.count(2) == 2  # <|im_start|> is one token each time
    assert len(ids) == 1 + 2 + len("user:Hello there;assistant:")
    assert p[: 1 + 1 + len("user:") + 20] == q[: 1 + 1 + len("user:") + 20]
    assert len(p) == len(ids) - len("Hello there") + 20 + len("\n\nWhy?")
    plain = chat_renderer([python], str(tmp_path / "plain"))
    [ids] = [prompt.input_ids for prompt in plain.render(PROMPTS[:1])]
    assert plain.used_template is False
    assert len(ids) == len("Hello there")
