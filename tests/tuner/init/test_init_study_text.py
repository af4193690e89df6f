"""Text of the study file: template, YAML values, comments."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.flags.flags import canonical_flag_value
from search_spaces.flags.options import options
from search_spaces.study_file import yaml_nodes
from search_spaces.study_file.load import parse_study
from tuner.init import collectives, speculation
from tuner.init.hardware import Hardware
from tuner.init.questions import Load
from tuner.init.study_text import WIDTH, Proposal, commented, fill, study_text, yaml_text
from tuner.init.today import Today

TEXTS = st.text() | st.sampled_from(
    ["yes", "null", "~", "1", "0x1f", "1_000", "12:30", "1e3", ".inf", "2024-01-01", "- a", "a: b",
     "# no", "a #b", "'", '"', "\\", "a\n b", " a", "a ", "%a", "@a", "`a`", "{a}", "[a", "*a",
     "&a", "!a", "|", ">-", "\u2028", "\x85", "\ufeff", "\x7f", "=", "<<", "1.0", "-", "?", ""]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS
TEMPLATE = """\
# about a
a: $a

# about b
b:
  # about c
  c: $c
  d:
    $lines

# about e
e: $e
"""

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
# Flags whose value may be any text.
FREE = sorted({o.name for o in options("0.5.23").values()
               if o.type == "str" and o.takes == 1 and not o.choices} & {
    "chat-template", "served-model-name", "tokenizer-path", "json-model-override-args", "revision",
    "download-dir", "log-level"})  # fmt: skip
LOADS = st.builds(
    Load,
    concurrencies=st.lists(st.integers(1, 512), min_size=1, max_size=3, unique=True).map(tuple),
    rates=st.just(()),
    prompts=st.just({"chat": 0.5, "code": 0.5}),
    output_tokens=st.integers(1, 4096),
    ttft_ms=st.none() | st.floats(1, 1e6),
    goodput=st.just({}) | st.just({"ttft_ms": 500.0}),
    launches=st.integers(1, 500),
    hours=st.none() | st.floats(0.1, 1e4),
)

LOAD = Load((1,), (), {"chat": 1.0}, 256, None, {}, 24, None)
TODAYS = st.builds(
    lambda draft, tp, flags, **rest: Today(
        draft=draft,
        algorithm="EAGLE3" if draft is not None else "none",
        flags={"tp-size": tp, **flags},
        python="python3",
        **rest,
    ),
    model=WORDS.filter(str.strip),
    draft=st.none() | WORDS.filter(str.strip),
    tp=st.sampled_from([1, 2, 4, 8]),
    flags=st.dictionaries(st.sampled_from(FREE), WORDS),
    env=st.dictionaries(st.sampled_from(["A", "HF_HOME", "SOME_FILE", "X_1"]), WORDS),
    prefix=st.lists(WORDS, max_size=3).map(tuple),
)


def proposal_of(today, gpu="", *, link="pcie", load=LOAD):
    hardware = Hardware(today.gpus, gpu, link if today.gpus > 1 else None, "given")
    return Proposal(
        name="made",
        origin="answers",
        today=today,
        hardware=hardware,
        speculations=speculation.propose(today, fewest=load.fewest),
        collectives=collectives.propose(today, hardware),
        load=load,
        runner="sglang",
    )


@settings(max_examples=60, deadline=None)
@given(today=TODAYS, link=st.sampled_from(["pcie", "nvlink"]), load=LOADS)
def test_fixed_values_are_read_back(today, link, load):
    proposal = proposal_of(today, "RTX PRO 6000", link=link, load=load)
    study = parse_study(study_text(proposal), "made.yaml")
    assert (study.model.path, study.model.draft) == (today.model, today.draft)
    for name, value in today.flags.items():
        assert study.server.flags[name] == canonical_flag_value(value)
    assert study.server.env == today.env
    assert study.server.prefix == today.prefix
    workload = study.to_workload()
    assert tuple(point.concurrency for point in workload.points) == load.concurrencies
    assert study.budget.launches == load.launches
    assert study.budget.hours == load.hours
    assert study.objective.subject_to.get("ttft_p95_ms") == load.ttft_ms


@given(key=TEXTS, value=SCALARS, choices=st.lists(SCALARS, min_size=1), why=st.text())
def test_every_value_is_read_back(key, value, choices, why):
    why = "".join(c for c in why if c.isprintable())
    expected = {
        f"a{key}": value,
        f"b{key}": choices,
        f"c{key}": {f"x{key}": value, "y": choices},
    }
    rows = [(f"{yaml_text(name)}: {yaml_text(part)}", why) for name, part in expected.items()]
    text = "\n".join(commented(rows, 0))
    assert yaml.safe_load(text) == expected, text
    assert yaml_nodes.read(text).data == expected, text


def test_numbers_are_read_back():
    numbers = [0.5, 1e-7, 1e22, 3, -2, 0.1 + 0.2]
    assert yaml_nodes.read(yaml_text(numbers)).data == numbers
    assert yaml_text(6.0) == "6"


@given(st.text(min_size=1) | st.text("ab -'\"$#:\\\n\t", min_size=1).map(lambda t: t * 40))
def test_a_command_is_read_back(command):
    text = study_text(proposal_of(Today(model="m", command=command)))
    assert yaml.safe_load(text)["production"] == {"command": command}, text


def test_comments_stand_in_a_column_or_above_a_long_line():
    rows = [("x: 1", "one"), ("longer: 22", "two"), (f"y: {'1' * 60}", "three " * 7)]
    assert commented(rows, 4) == [
        "x: 1        # one",
        "longer: 22  # two",
        f"# {('three ' * 7).strip()}",
        f"y: {'1' * 60}",
    ]


def test_lines_of_a_study_stay_short():
    today = Today(model="m/m", flags={"tp-size": 8}, command="a --b c " * 60 + "d", draft="d/d")
    lines = study_text(proposal_of(today, "RTX PRO 6000")).splitlines()
    assert max(map(len, lines)) <= WIDTH


def test_a_line_without_value_goes_with_its_comments():
    filled = fill(TEMPLATE, {"a": "1", "c": "1", "lines": "x: 1\ny: 2", "e": None})
    assert (
        filled
        == "# about a\na: 1\n\n# about b\nb:\n  # about c\n  c: 1\n  d:\n    x: 1\n    y: 2\n"
    )


def test_a_section_without_lines_goes_with_its_comments():
    filled = fill(TEMPLATE, {"a": "1", "c": None, "lines": None, "e": "2"})
    assert filled == "# about a\na: 1\n\n# about e\ne: 2\n"


def test_a_dollar_sign_in_a_value_is_kept():
    assert fill("a: $a\n", {"a": "$NAME"}) == "a: $NAME\n"
