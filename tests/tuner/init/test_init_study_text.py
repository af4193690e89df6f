"""The file says what it was made from, whatever that holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.flags.flags import canonical_flag_value
from search_spaces.flags.options import options
from search_spaces.study_file.load import parse_study
from tuner.init import collectives, speculation
from tuner.init.hardware import Hardware
from tuner.init.load import Load
from tuner.init.study_text import Proposal, study_text
from tuner.init.today import Today

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
# Flags of free text: others have readers of their own.
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


@settings(max_examples=60, deadline=None)
@given(today=TODAYS, link=st.sampled_from(["pcie", "nvlink"]), load=LOADS)
def test_what_is_fixed_is_read_back(today, link, load):
    tp = today.gpus
    hardware = Hardware(tp, "RTX PRO 6000", link if tp > 1 else None, "as told")
    proposal = Proposal(
        name="made",
        origin="answers",
        today=today,
        hardware=hardware,
        speculations=speculation.propose(today, fewest=load.fewest),
        collectives=collectives.propose(today, hardware),
        load=load,
        runner="sglang",
    )
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
