"""The texts of the sets that are written out: many, distinct, clean, of all lengths."""

from __future__ import annotations

import itertools
import re
import statistics
import unicodedata
from collections import Counter

import pytest

from runners.load.prompts.built_in import built_in_texts

WRITTEN_SETS = ("chat", "code", "maths")


def words(text):
    return tuple(re.findall(r"\w+", text.casefold()))


@pytest.mark.parametrize("name", WRITTEN_SETS)
def test_enough_for_concurrency_64_with_some_to_spare(name):
    assert len(built_in_texts(name)) >= 345


def test_no_two_prompts_say_the_same():
    seen = Counter(words(text) for name in WRITTEN_SETS for text in built_in_texts(name))
    assert [found for found, times in seen.items() if times > 1] == []


def test_no_prompt_is_another_one_with_some_words_changed():
    runs = {}
    for name in WRITTEN_SETS:
        for number, text in enumerate(built_in_texts(name)):
            said = words(text)
            runs[f"{name}/{number:03d}"] = {said[n : n + 4] for n in range(len(said) - 3)}
    places = {}
    for prompt, own in runs.items():
        for run in own:
            places.setdefault(run, []).append(prompt)
    shared = Counter(
        pair for found in places.values() for pair in itertools.combinations(sorted(found), 2)
    )
    for (a, b), count in shared.items():
        # Three in common is a turn of phrase.
        assert count <= max(3, 0.25 * min(len(runs[a]), len(runs[b]))), (a, b)


def test_no_stock_sentence_pads_several_prompts():
    sentences = Counter(
        sentence
        for name in WRITTEN_SETS
        for text in built_in_texts(name)
        for sentence in {words(part) for part in re.split(r"[.!?]\s|\n", text)}
        if len(sentence) >= 6
    )
    assert [found for found, times in sentences.items() if times > 1] == []


@pytest.mark.parametrize("name", WRITTEN_SETS)
def test_texts_are_clean(name):
    for text in built_in_texts(name):
        assert unicodedata.is_normalized("NFC", text), text[:40]
        assert "\N{REPLACEMENT CHARACTER}" not in text, text[:40]
        assert all(line == line.rstrip() for line in text.split("\n")), text[:40]
        # Tabs are for code that has them, such as Go and make.
        odd = {c for c in text if unicodedata.category(c) in {"Cc", "Co", "Cs"}} - {"\n"}
        assert odd <= ({"\t"} if name == "code" else set()), text[:40]
        assert text.count("\n```") % 2 == 0, text[:40]
        assert not text.startswith("%%"), text[:40]


# What production sends is mostly short with a long tail; of the maths only few have a long one.
@pytest.mark.parametrize(("name", "tail"), [("chat", 3), ("code", 2.5), ("maths", 1.5)])
def test_lengths_are_spread(name, tail):
    lengths = sorted(map(len, built_in_texts(name)))
    median = statistics.median(lengths)
    percentile_5, *_, percentile_95 = statistics.quantiles(lengths, n=20)
    assert 100 <= median <= 400
    assert percentile_5 <= 0.75 * median
    assert percentile_95 >= tail * median


def test_a_good_share_of_the_code_set_shows_code():
    texts = built_in_texts("code")
    assert sum("\n```" in text for text in texts) >= 0.3 * len(texts)
