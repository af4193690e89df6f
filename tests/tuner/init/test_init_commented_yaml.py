"""YAML with comments: what is written is what is read back."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.study_file import yaml_nodes
from tuner.init.commented_yaml import WIDTH, Block, Choices, Entry, Folded, Items, Remark, render

TEXTS = st.text() | st.sampled_from(
    ["yes", "null", "~", "1", "0x1f", "1_000", "12:30", "1e3", ".inf", "2024-01-01", "- a", "a: b",
     "# no", "a #b", "'", '"', "\\", "a\n b", " a", "a ", "%a", "@a", "`a`", "{a}", "[a", "*a",
     "&a", "!a", "|", ">-", "\u2028", "\x85", "\ufeff", "\x7f", "=", "<<", "1.0", "-", "?", ""]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS


@given(key=TEXTS, value=SCALARS, choices=st.lists(SCALARS, min_size=1), why=st.text())
def test_every_scalar_is_read_back(key, value, choices, why):
    why = "".join(c for c in why if c.isprintable())
    text = render(
        Block(
            (
                Entry(f"a{key}", value, above=why, beside=why),
                Entry(f"b{key}", choices, beside=why),
                Entry(f"c{key}", {f"x{key}": value, "y": choices}),
                Entry(f"d{key}", Choices([(choice, why) for choice in choices])),
                Entry(f"e{key}", Block((Remark(why), Entry("in", value, above=why)))),
                Entry(f"f{key}", Items([Block((Entry("one", value, why, why), Entry("two", 2)))])),
            )
        )
    )
    expected = {
        f"a{key}": value,
        f"b{key}": choices,
        f"c{key}": {f"x{key}": value, "y": choices},
        f"d{key}": choices,
        f"e{key}": {"in": value},
        f"f{key}": [{"one": value, "two": 2}],
    }
    assert yaml.safe_load(text) == expected, text
    assert yaml_nodes.read(text).data == expected, text


@given(st.text() | st.text(alphabet="ab -'\"$#:\\\n\t").map(lambda t: t * 40))
def test_a_folded_line_is_read_back(command):
    text = render(Block((Entry("command", Folded(command)), Entry("after", 1))))
    assert yaml.safe_load(text) == {"command": command, "after": 1}, text


def test_numbers_are_read_back():
    numbers = [0.5, 1e-7, 1e22, 3, -2, 0.1 + 0.2]
    text = render(Block((Entry("n", numbers),)))
    assert yaml_nodes.read(text).data == {"n": numbers}


def test_lines_stay_short_and_comments_stand_in_a_column():
    long = "word " * 60
    text = render(
        Block(
            (
                Entry("a", Block((Entry("x", 1, beside="one"), Entry("longer", 22, beside="two")))),
                Entry("command", Folded(long.strip()), above=long),
                Entry("many", [f"some-value-{n}" for n in range(30)]),
            )
        )
    )  # fmt: skip
    assert "  x: 1        # one\n  longer: 22  # two\n" in text
    assert all(len(line) <= WIDTH for line in text.splitlines() if "#" in line)
    assert yaml.safe_load(text)["many"][29] == "some-value-29"


def test_an_empty_section_keeps_its_remark():
    text = render(Block((Entry("env", Block((Remark("one GPU"),))),)))
    assert text == "# one GPU\nenv: {}\n"
