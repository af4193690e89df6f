"""Files of prompts, data sets and their mixture."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.prompts.conformance import PromptSourceConformance
from runners.load.prompts.prompts import (
    MixedPrompts,
    NotEnoughPromptsError,
    Prompt,
    PromptFileError,
    PromptPool,
)
from runners.load.prompts.sources import prompt_source


def write(path: Path, *lines: object) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return f"jsonl:{path}"


class TestJsonlPrompts(PromptSourceConformance):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.name = write(
            tmp_path / "mine.jsonl", *({"prompt": f"question {n}"} for n in range(30))
        )

    def make(self):
        return prompt_source(((self.name, 1.0),))


class TestMixture(PromptSourceConformance):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        write(tmp_path / "mine.jsonl", *({"text": f"question {n}"} for n in range(30)))
        chats = [
            {
                "conversations": [
                    {"from": "human", "value": f"chat {n}"},
                    {"from": "gpt", "value": "a"},
                ]
            }
            for n in range(30)
        ]
        (tmp_path / "chats.json").write_text(json.dumps(chats))
        self.folder = tmp_path

    def make(self):
        shares = (("jsonl:mine.jsonl", 0.4), ("sharegpt:chats.json", 0.4), ("chat", 0.2))
        return prompt_source(shares, base_dir=self.folder)


POOLS = {
    name: PromptPool(
        name, lambda name=name: tuple(Prompt(f"{name}/{n}", f"{name} {n}") for n in range(60))
    )
    for name in ("a", "b", "c")
}


@given(
    shares=st.dictionaries(st.sampled_from(sorted(POOLS)), st.floats(0.05, 10), min_size=1),
    count=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_every_beginning_of_a_mixture_keeps_its_shares(shares, count, seed):
    mixed = MixedPrompts([(POOLS[name], share) for name, share in shares.items()])
    selection = mixed.select(count, seed)
    assert len({prompt.id for prompt in selection}) == count
    total = sum(shares.values())
    for name, share in shares.items():
        got = sum(prompt.id.startswith(f"{name}/") for prompt in selection)
        assert abs(got - share / total * count) < len(POOLS)


@given(common=st.integers(0, 20), own=st.integers(1, 20), seed=st.integers(0, 100))
def test_what_two_files_have_in_common_is_sent_once(common, own, seed):
    def pool(name: str) -> PromptPool:
        texts = [f"both {n}" for n in range(common)] + [f"{name} {n}" for n in range(own)]
        return PromptPool(name, lambda: tuple(Prompt(f"{name}/{t}", t) for t in texts))

    mixed = MixedPrompts([(pool("a"), 0.5), (pool("b"), 0.5)])
    # Each side has its own, and at worst the other side took all that they share.
    selection = mixed.select(2 * own, seed)
    assert len({prompt.text for prompt in selection}) == 2 * own


def test_relative_paths_start_from_the_base(tmp_path, monkeypatch):
    write(tmp_path / "mine.jsonl", "one", "two")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    source = prompt_source((("jsonl:mine.jsonl", 1.0),), base_dir=tmp_path)
    assert {prompt.id for prompt in source.select(2, 0)} == {
        "jsonl:mine.jsonl/1",
        "jsonl:mine.jsonl/2",
    }
    with pytest.raises(PromptFileError, match=r"cannot read mine.jsonl .*No such file"):
        prompt_source((("jsonl:mine.jsonl", 1.0),)).select(1, 0)


def test_nothing_is_read_before_it_is_needed(tmp_path):
    source = prompt_source(((f"jsonl:{tmp_path}/later.jsonl", 1.0),))
    assert source.select(0, 0) == ()
    write(tmp_path / "later.jsonl", "now")
    assert source.select(1, 0)[0].text == "now"


def test_a_line_may_have_any_of_four_forms(tmp_path):
    turns = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Why is "}, {"type": "text", "text": "it?"}],
        },
    ]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf"plain"\n\n{"prompt": "p", "id": 7}\n{"text": "t"}\n{"input_ids": [1, 2]}\n'
        + json.dumps({"messages": turns}).encode()
        + b'\n{"prompt": "p"}\n'
    )
    prompts = {
        p.id.rpartition("/")[2]: p for p in prompt_source(((f"jsonl:{path}", 1.0),)).select(5, 3)
    }
    assert sorted(prompts) == ["1", "3", "4", "5", "6"]  # the seventh line repeats the third
    assert (prompts["1"].text, prompts["3"].text, prompts["4"].text) == ("plain", "p", "t")
    assert prompts["5"].input_ids == (1, 2)
    assert prompts["6"].messages == (("system", "Be brief."), ("user", "Why is it?"))
    assert prompts["6"].text == "System: Be brief.\n\nUser: Why is it?"
    assert prompts["1"].turns == (("user", "plain"),)
    assert prompts["5"].turns == ()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: not JSON"),
        ("12", "line 2: a prompt must be a string or an object, not a int"),
        ('{"question": "?"}', "line 2: a prompt needs one of the keys prompt, text, .*found none"),
        ('{"prompt": "a", "text": "b"}', "found prompt and text"),
        ('{"prompt": "  "}', "line 2: prompt: is empty"),
        ('{"text": 3}', "line 2: text: must be text, not 3"),
        ('{"input_ids": []}', "must be a list of token ids"),
        ('{"input_ids": [1, -2]}', "must be a list of token ids"),
        ('{"input_ids": [true]}', "must be a list of token ids"),
        ('{"messages": []}', "must be a list of turns"),
        ('{"messages": ["hello"]}', "a turn needs a role and a content"),
        ('{"messages": [{"role": "user", "content": 1}]}', "content of a turn must be text"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "only parts of type text are supported",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "text", "text": null}]}]}',
            "the text of a part must be text",
        ),
        ('{"messages": [{"role": "user", "content": " "}]}', "all turns are empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, says):
    path = tmp_path / "wrong.jsonl"
    path.write_text(f'"good"\n{line}\n')
    with pytest.raises(PromptFileError, match=says) as caught:
        prompt_source(((f"jsonl:{path}", 1.0),)).select(1, 0)
    assert caught.value.source == f"jsonl:{path}"


def test_an_empty_file_holds_no_prompts(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    with pytest.raises(PromptFileError, match="has no prompts"):
        prompt_source(((f"jsonl:{path}", 1.0),)).select(1, 0)


def test_a_file_that_is_too_small_says_so(tmp_path):
    name = write(tmp_path / "few.jsonl", "one", "two")
    with pytest.raises(
        NotEnoughPromptsError, match=r"needs 3 distinct prompts, .* the file 'jsonl:.* only 2"
    ):
        prompt_source(((name, 1.0),)).select(3, 0)


CHAT = [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": "Yes."}]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([{"id": "x", "conversations": CHAT}]),
        json.dumps({"conversation": CHAT}),
        json.dumps({"items": CHAT}) + "\n" + json.dumps({"conversations": CHAT}) + "\n",
        json.dumps([CHAT]),
        json.dumps([{"messages": [{"role": "user", "content": "Hello?"}]}]),
        json.dumps([{"conversations": CHAT}, {"conversations": CHAT[1:]}, {"conversations": []}]),
    ],
)
def test_the_usual_shapes_of_sharegpt(tmp_path, content):
    path = tmp_path / "chats.json"
    path.write_text(content)
    [prompt] = prompt_source(((f"sharegpt:{path}", 1.0),)).select(1, 0)
    assert (prompt.text, prompt.messages) == ("Hello?", None)
    assert prompt.id == f"sharegpt:{path}/0"


def test_a_system_prompt_and_two_questions_in_a_row_stay_together(tmp_path):
    chat = [
        {"from": "system", "value": "Be kind."},
        {"from": "human", "value": "One"},
        {"from": "human", "value": "Two"},
        {"from": "gpt", "value": "Answer"},
        {"from": "human", "value": "Three"},
    ]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"conversations": chat}]))
    [prompt] = prompt_source(((f"sharegpt:{path}", 1.0),)).select(1, 0)
    assert prompt.messages == (("system", "Be kind."), ("user", "One"), ("user", "Two"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "not JSON"),
        ('[{"text": "no chat"}]', "conversation 0: not in ShareGPT's format"),
        ('[{"conversations": ["hello"]}]', "not in ShareGPT's format"),
        ('[{"conversations": [{"from": "tool", "value": "x"}]}]', "not in ShareGPT's format"),
        ("[]", "has no conversation"),
    ],
)
def test_a_wrong_sharegpt_file(tmp_path, content, says):
    path = tmp_path / "chats.json"
    path.write_text(content)
    with pytest.raises(PromptFileError, match=says):
        prompt_source(((f"sharegpt:{path}", 1.0),)).select(1, 0)


def test_a_file_that_grows_keeps_the_ids_of_its_lines():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        name = write(path, "one", "two")
        before = {p.id: p.text for p in prompt_source(((name, 1.0),)).select(2, 0)}
        write(path, "one", "two", "three")
        after = {p.id: p.text for p in prompt_source(((name, 1.0),)).select(3, 0)}
    assert before.items() < after.items()


@pytest.mark.parametrize("scheme", ["jsonl", "sharegpt"])
@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "a\0b", ".", "x" * 300])
def test_paths_that_lead_nowhere(tmp_path, scheme, path):
    with pytest.raises(PromptFileError, match="cannot read"):
        prompt_source(((f"{scheme}:{path}", 1.0),), base_dir=tmp_path).select(1, 0)
