"""NCCL's variables: what each takes, its one spelling, what wins over what."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration
from search_spaces.nccl.values import (
    ALGORITHMS,
    COLLECTIVES,
    HAS,
    PROTOCOLS,
    canonical_value,
    crossed_bounds,
    nothing_left,
    read_list,
    shadowed,
    unknown_variable,
    unusable_collective,
    value_problem,
)
from search_spaces.nccl.variables import LAST_READ_BY, VARIABLES
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from search_spaces.study_file.warnings import warnings
from search_spaces.variables import canonical_env

REFUSED = {
    "an unknown protocol": ("NCCL_PROTO", "LL182", "did you mean `LL128`?"),
    "a blank": ("NCCL_PROTO", "LL, Simple", "has blanks"),
    "a blank around it": ("NCCL_PROTO", " LL", "write 'LL'"),
    "nothing": ("NCCL_PROTO", "", "write null"),
    "semicolons for commas": ("NCCL_PROTO", "LL;Simple", "names no collective"),
    "a comma at the end": ("NCCL_PROTO", "LL,", "is missing"),
    "a semicolon at the end": ("NCCL_PROTO", "LL;", "without `;` or `:` at an end"),
    "half an entry": ("NCCL_PROTO", "allreduce:", "half an entry"),
    "two colons": ("NCCL_PROTO", "allreduce:LL:Simple", "two colons"),
    "a late caret": ("NCCL_PROTO", "LL,^Simple", "Write `^` once"),
    "only a caret": ("NCCL_PROTO", "^", "is missing"),
    "everything turned off": ("NCCL_PROTO", "^LL,LL128,Simple", "leaves no protocol"),
    "a collective twice": ("NCCL_PROTO", "LL;allreduce:LL;AllReduce:Simple", "is repeated"),
    "an unknown collective": ("NCCL_PROTO", "LL;allreduec:LL", "did you mean `AllReduce`?"),
    "an algorithm among protocols": ("NCCL_PROTO", "ring", "no protocol 'ring'"),
    "an old algorithm": ("NCCL_ALGO", "ring,collnet", "CollNetDirect and CollNetChain"),
    "Tree alone": ("NCCL_ALGO", "Tree", "write `ring,tree;allreduce:tree`"),
    "NVLS alone": ("NCCL_ALGO", "nvls", "leaves Broadcast and Reduce no algorithm"),
    "PAT for all-reduce": ("NCCL_ALGO", "allreduce:pat", "leaves AllReduce no algorithm"),
    "a level in small letters": ("NCCL_P2P_LEVEL", "sys", "write SYS"),
    "an unknown level": ("NCCL_P2P_LEVEL", "PBH", "did you mean `PHB`?"),
    "a level below none": ("NCCL_P2P_LEVEL", "-1", "silently ignores it"),
    "a level to base 8": ("NCCL_NET_GDR_LEVEL", "03", "without a 0 before it"),
    "a word for a number": ("NCCL_MIN_NCHANNELS", "abc", "reads 'abc' as 0"),
    "half a number": ("NCCL_MIN_NCHANNELS", "8x", "reads '8x' as 8"),
    "a unit": ("NCCL_BUFFSIZE", "8M", "write 8388608"),
    "a unit in words": ("NCCL_BUFFSIZE", "512 KiB", "write 524288"),
    "a fraction": ("NCCL_MIN_CTAS", "1.5", "reads '1.5' as 1"),
    "base 8": ("NCCL_MIN_NCHANNELS", "010", "to base 8: write 10"),
    "too many channels": ("NCCL_MAX_NCHANNELS", "128", "from 1 to 64"),
    "no channel": ("NCCL_MIN_NCHANNELS", "0", "from 1 to 64"),
    "NCCL's own default": ("NCCL_MAX_NCHANNELS", "-2", "own choice write null"),
    "threads": ("NCCL_NTHREADS", "100", "a multiple of 32"),
    "more threads than there are": ("NCCL_NTHREADS", "1024", "from 64 to 512"),
    "more than an int": ("NCCL_BUFFSIZE", str(2**31), "from 8 to 2147483647"),
    "a word for a switch": ("NCCL_P2P_DISABLE", "true", "reads 'true' as 0: write 1"),
    "another word for a switch": ("NCCL_IB_DISABLE", "off", "write 0"),
    "2 for a switch": ("NCCL_P2P_DISABLE", "2", "Must be 0 or 1"),
    "3 for a choice of three": ("NCCL_NVLS_ENABLE", "3", "from 0 to 2"),
    "a level of logging": ("NCCL_DEBUG", "INF0", "did you mean `INFO`?"),
    "a part of NCCL": ("NCCL_DEBUG_SUBSYS", "INIT,TUNNING", "did you mean `TUNING`?"),
    "a family": ("NCCL_SOCKET_FAMILY", "af_inet", "write AF_INET"),
    "a policy": ("NCCL_CTA_POLICY", "FAST", "no 'FAST' here"),
}


@pytest.mark.parametrize(("name", "value", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_nccl_refuses_or_reads_otherwise_is_said(name, value, says):
    problem = value_problem(name, value)
    assert problem is not None
    assert says in problem
    assert canonical_value(name, value) == value


SPELLINGS = {
    "protocols": ("NCCL_PROTO", "LL,Simple", ("simple,ll", "LL,LL,Simple", "^LL128", "^ll128")),
    "the field's form": (
        "NCCL_ALGO",
        "ring,tree;allreduce:tree",
        ("Tree,RING;AllReduce:Tree", "ring,tree;allreduce:tree"),
    ),
    "one collective": ("NCCL_ALGO", "allreduce:ring", ("AllReduce:RING",)),
    "an exclusion": (
        "NCCL_ALGO",
        "allreduce:ring,collnetdirect,collnetchain,nvls,nvlstree,pat",
        ("allreduce:^tree",),
    ),
    "all but one": (
        "NCCL_PROTO",
        "LL;allreduce:Simple",
        ("broadcast:LL;reduce:LL;allgather:LL;reducescatter:LL;allreduce:Simple",),
    ),
    "levels": ("NCCL_P2P_LEVEL", "SYS", ("4", "5", "99")),
    "another level": ("NCCL_NET_GDR_LEVEL", "PXB", ("2",)),
    "numbers": ("NCCL_BUFFSIZE", "8388608", ("0x800000", "0X800000")),
    "logging": ("NCCL_DEBUG", "WARN", ("warn",)),
    "parts": ("NCCL_DEBUG_SUBSYS", "INIT,ENV", ("env,init",)),
    "other parts": ("NCCL_DEBUG_SUBSYS", "^INIT", ("^init",)),
}


@pytest.mark.parametrize(("name", "one", "others"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_value_has_one_spelling(name, one, others):
    for value in (one, *others):
        assert value_problem(name, value) is None
        assert canonical_value(name, value) == one


def test_every_variables_example_is_taken():
    assert len(VARIABLES) > 200
    for name, variable in VARIABLES.items():
        assert name == variable.name
        assert value_problem(name, variable.example) is None


def test_other_peoples_variables_are_left_alone():
    others = ("OMP_NUM_THREADS", "TORCH_NCCL_AVOID_RECORD_STREAMS", "SGLANG_X")
    for name in (*others, "NCCL_ASYNC_ERROR_HANDLING"):
        assert value_problem(name, "anything at all") is None
        assert unknown_variable(name) is None
    assert canonical_value("OMP_NUM_THREADS", "010") == "010"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NCCL_PROTOCOL", "did you mean `NCCL_PROTO`?"),
        ("nccl_proto", "did you mean `NCCL_PROTO`?"),
        ("NCCL_MIN_CHANNELS", "did you mean `NCCL_MIN_NCHANNELS`?"),
        ("NCCL_XYZZY", "does not read this variable"),
        ("NCCL_SHM_USE_CUDA_MEMCPY", "2.30.4 is the last"),
    ],
)
def test_a_variable_that_nccl_does_not_read(name, says):
    assert says in unknown_variable(name)


def test_known_variables_are_no_news():
    assert all(unknown_variable(name) is None for name in VARIABLES if name not in LAST_READ_BY)
    assert set(LAST_READ_BY) <= set(VARIABLES)


# --- the grammar, against what NCCL's own reader does with a value ---------------------------


def words(text, separators):
    """As C's strtok: empty words are nobody's."""
    return [word for word in re.split(f"[{separators}]", text) if word]


def nccl_reads(text, known):
    """What is on per collective after NCCL 2.24 to 2.30 has read `text`; `None` if it refuses."""
    on = dict.fromkeys(COLLECTIVES)
    for index, entry in enumerate(words(text, ";")):
        parts = words(entry, ":")
        if not parts:
            return None
        if len(parts) == 1 and index:
            return None
        prefix, names = (None, parts[0]) if len(parts) == 1 else parts[:2]
        inverted = names.startswith("^")
        chosen = set()
        for word in words(names.removeprefix("^"), ","):
            match = [name for name in known if name.lower() == word.lower()]
            if not match:
                return None
            chosen.add(match[0])
        meant = [c for c in COLLECTIVES if prefix is None or c.lower() == prefix.lower()]
        if not meant:
            return None
        for collective in meant:
            on[collective] = frozenset(known) - chosen if inverted else frozenset(chosen)
    return on


def lists(known):
    names = st.lists(st.sampled_from(known), min_size=1, max_size=4)
    cased = st.sampled_from([str.lower, str.upper, str])
    entry = st.builds(
        lambda caret, chosen, case: caret + case(",".join(chosen)),
        st.sampled_from(["", "^"]),
        names,
        cased,
    )
    later = st.dictionaries(st.sampled_from(COLLECTIVES), entry, max_size=3)
    joined = st.builds(
        lambda first, rest, case: ";".join(
            [*([first] if first else []), *(f"{case(c)}:{e}" for c, e in rest.items())]
        ),
        st.one_of(st.none(), entry),
        later,
        cased,
    )
    return joined.filter(bool)


VALUES = st.one_of(
    st.tuples(st.just("NCCL_ALGO"), lists(ALGORITHMS)),
    st.tuples(st.just("NCCL_PROTO"), lists(PROTOCOLS)),
)
KNOWN = {"NCCL_ALGO": ALGORITHMS, "NCCL_PROTO": PROTOCOLS}


def makes_sense(name, on):
    """Whether a value that NCCL takes leaves every collective something."""
    has = HAS if name == "NCCL_ALGO" else dict.fromkeys(COLLECTIVES, frozenset(PROTOCOLS))
    return all(on[c] is None or on[c] & has[c] for c in COLLECTIVES)


@given(VALUES)
def test_well_formed_lists_are_read_as_nccl_reads_them(named):
    name, text = named
    on = nccl_reads(text, KNOWN[name])
    assert on is not None
    assert (value_problem(name, text) is None) == makes_sense(name, on)
    if value_problem(name, text) is None:
        assert {c: read_list(name, text).of(c) for c in COLLECTIVES} == on


@given(VALUES, st.integers(0, 40), st.integers(0, 2), st.text(";:,^ lsxring128", max_size=2))
def test_a_slip_in_a_list_is_refused_or_read_as_nccl_reads_it(named, at, length, typed):
    name, text = named
    slipped = text[:at] + typed + text[at + length :]
    on = nccl_reads(slipped, KNOWN[name])
    if value_problem(name, slipped) is None:
        assert on is not None
        assert {c: read_list(name, slipped).of(c) for c in COLLECTIVES} == on
    if on is None:
        assert value_problem(name, slipped) is not None


@given(VALUES, VALUES)
def test_lists_have_one_spelling_each(one, other):
    (name, text), (second, more) = one, other
    assume(value_problem(name, text) is None)
    spelled = canonical_value(name, text)
    assert value_problem(name, spelled) is None
    assert canonical_value(name, spelled) == spelled
    assert read_list(name, spelled) == read_list(name, text)
    if name == second and value_problem(second, more) is None:
        same = read_list(name, text) == read_list(second, more)
        assert same == (canonical_value(second, more) == spelled)


@given(VALUES, VALUES)
def test_a_collective_without_a_way_is_found(one, other):
    env = dict([one, other])
    assume(all(value_problem(name, value) is None for name, value in env.items()))
    found = nothing_left(env)
    algorithms = read_list("NCCL_ALGO", env["NCCL_ALGO"]) if "NCCL_ALGO" in env else None
    protocols = read_list("NCCL_PROTO", env["NCCL_PROTO"]) if "NCCL_PROTO" in env else None
    lost = [
        c
        for c in COLLECTIVES
        if algorithms is not None
        and (chosen := algorithms.of(c)) is not None
        and not any(
            a in HAS[c] and (p == "Simple" or a not in {"NVLS", "NVLSTree", "PAT"})
            for a in chosen
            for p in ((protocols.of(c) if protocols else None) or PROTOCOLS)
        )
    ]
    assert (found is None) == (not lost)
    assert unusable_collective(None, protocols) is None


# --- numbers -----------------------------------------------------------------------------------

NUMBERS = st.sampled_from([v.name for v in VARIABLES.values() if v.kind in {"number", "switch"}])


@given(NUMBERS, st.integers(-(2**63), 2**63 - 1))
def test_a_number_that_is_taken_is_the_number(name, number):
    if value_problem(name, str(number)) is None:
        assert canonical_value(name, str(number)) == str(number)
    else:
        assert str(number) in value_problem(name, str(number))


@given(NUMBERS, st.text(max_size=6))
def test_text_is_no_number(name, text):
    if value_problem(name, text) is None:
        assert re.fullmatch(r"-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)", text)


# --- together ----------------------------------------------------------------------------------


def test_minimum_and_maximum():
    def crossed(**env):
        return [
            (least, most)
            for least, most, _ in crossed_bounds(
                {f"NCCL_{name}": str(v) for name, v in env.items()}
            )
        ]

    assert crossed(MIN_NCHANNELS=16, MAX_NCHANNELS=8) == [
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
    ]
    assert crossed(MIN_NCHANNELS=8, MAX_NCHANNELS=8) == []
    assert crossed(MIN_CTAS=16, MAX_NCHANNELS=8) == [("NCCL_MIN_CTAS", "NCCL_MAX_NCHANNELS")]
    # The old name counts where the new one is not set.
    assert crossed(MIN_NRINGS=16, MAX_CTAS=8) == [("NCCL_MIN_NRINGS", "NCCL_MAX_CTAS")]
    assert crossed(MIN_NRINGS=16, MIN_NCHANNELS=4, MAX_CTAS=8) == []
    assert crossed(MIN_P2P_NCHANNELS=4, MAX_P2P_NCHANNELS=2) == [
        ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS")
    ]


def test_what_wins_over_what():
    assert list(shadowed({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"})) == [
        ("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE")
    ]
    assert list(shadowed({"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"})) == []
    assert list(shadowed({"NCCL_MIN_NRINGS": "4", "NCCL_MIN_NCHANNELS": "8"})) == [
        ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS")
    ]


ENV = st.fixed_dictionaries(
    {},
    optional={
        "NCCL_PROTO": st.sampled_from([None, "ll,simple", "Simple,LL", "LL", "nonsense"]),
        "NCCL_ALGO": st.sampled_from([None, "ring,tree;allreduce:Tree", "ring"]),
        "NCCL_P2P_DISABLE": st.sampled_from([None, "0", "1"]),
        "NCCL_P2P_LEVEL": st.sampled_from([None, "SYS", "4", "LOC"]),
        "NCCL_MIN_NRINGS": st.sampled_from([None, "4"]),
        "NCCL_MIN_NCHANNELS": st.sampled_from([None, "8", "0x8"]),
        "OTHER": st.sampled_from([None, "x"]),
    },
)


@given(ENV, ENV)
def test_the_one_form_of_an_environment(env, fixed):
    once = canonical_env(env, fixed)
    assert canonical_env(once, fixed) == once
    assert list(once) == list(env)
    assert once.get("OTHER") == env.get("OTHER")
    given_now = {name: value for name, value in (fixed | once).items() if value is not None}
    for loser, _ in shadowed(given_now):
        assert loser in fixed
        assert loser not in once


# --- in a study --------------------------------------------------------------------------------


def study_with(make_study, env, **fixed):
    parts = [{"algorithm": "none"}]
    return make_study(
        server={"flags": {"tp-size": 8}, "env": fixed}, space={"speculation": parts, "env": env}
    )


def test_peer_access_off_is_one_point_whatever_its_level(make_study):
    env = {"NCCL_P2P_DISABLE": [None, "1"], "NCCL_P2P_LEVEL": [None, "PHB", "SYS"]}
    study = study_with(make_study, env)
    points = Space(study).points
    assert len(points) == 4
    off = Configuration.of(env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"})
    assert canonical(off, study) in points
    assert dict(canonical(off, study).env) == {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None}


def test_crossing_choices_are_no_points(make_study):
    env = {"NCCL_MIN_NCHANNELS": [None, 4, 16], "NCCL_MAX_NCHANNELS": [None, 8]}
    study = study_with(make_study, env)
    assert len(Space(study)) == 5
    bad = Configuration.of(env={"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"})
    assert [v.rule for v in violations(bad, study)] == ["nccl_bounds"]


def test_choices_are_kept_in_their_one_spelling(make_study):
    env = {"NCCL_PROTO": [None, "simple,ll", "ll128"], "NCCL_P2P_LEVEL": [None, 4]}
    study = study_with(make_study, env)
    assert study.space.env == {
        "NCCL_PROTO": (None, "LL,Simple", "LL128"),
        "NCCL_P2P_LEVEL": (None, "SYS"),
    }
    for point in Space(study):
        assert canonical(point, study) == point
    spelled = Configuration.of(env={"NCCL_PROTO": "SIMPLE,LL", "NCCL_P2P_LEVEL": "5"})
    assert canonical(spelled, study) in Space(study)


def test_what_stands_beside_its_better_is_told(make_study):
    study = study_with(
        make_study, {"A": ["x", "y"]}, NCCL_P2P_DISABLE="1", NCCL_P2P_LEVEL="SYS", NCCL_PROTOO="LL"
    )
    told = warnings(study)
    assert any("NCCL_P2P_LEVEL: NCCL ignores it when NCCL_P2P" in w for w in told)
    assert any("server.env.NCCL_PROTOO" in w and "`NCCL_PROTO`" in w for w in told)
    assert parse_study(study.text, "again.yaml").space == study.space
