"""The baseline of `production.command`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.sglang.command import sglang_command, shell
from search_spaces.configuration import Configuration, Speculation
from search_spaces.flags.speculation_flags import speculation_of
from search_spaces.launch_commands import LaunchText, read_launch_text
from search_spaces.problems import StudyFileError
from search_spaces.secrets import is_export_only, is_secret
from search_spaces.space.baselines import baselines, production_warnings, same_value
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from search_spaces.study_file.warnings import warnings
from search_spaces.variables import canonical_env

from ..conftest import study_dict

COMMANDS = Path(__file__).parents[2] / "data" / "commands"
SERVE = "python -m sglang.launch_server --model-path org/target --tp 8"
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft"
STEPS = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


@pytest.fixture
def production(make_study):
    def baseline(command: str, **sections) -> Configuration:
        return baselines(make_study(production={"command": command}, **sections))["production"]

    return baseline


def test_no_production_no_baseline(make_study):
    assert list(baselines(make_study())) == ["none", "default"]


def test_the_third_baseline_comes_last(make_study):
    study = make_study(production={"command": f"{SERVE} {EAGLE3} {STEPS}"})
    assert list(baselines(study)) == ["none", "default", "production"]
    assert baselines(study)["production"] in Space(study)


def test_production_holds_only_differences_from_the_server(production):
    server = {
        "flags": {"tp-size": 8, "mem-fraction-static": 0.85, "page-size": 16, "host": "1.2.3.4"},
        "env": {"NCCL_DEBUG": "WARN", "A": "1", "GONE": None},
    }
    found = production(
        f"A=2 B=3 {SERVE} --mem-fraction-static 0.850 --cuda-graph-bs 1 2 4 --port 1", server=server
    )
    assert found == Configuration.of(
        flags={"page-size": None, "cuda-graph-bs": (1, 2, 4)},
        env={"NCCL_DEBUG": None, "A": "2", "B": "3"},
    )
    assert Configuration.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_production_values_get_the_spelling_of_the_study(production):
    space = {
        "speculation": [{"algorithm": "none"}],
        "flags": {"mem-fraction-static": [0.8, 0.9], "page-size": [None, 64]},
        "env": {"NCCL_PROTO": [None, "LL"]},
    }
    found = production(f"NCCL_PROTO=LL {SERVE} --mem-fraction-static 0.90", space=space)
    assert dict(found.flags) == {"mem-fraction-static": 0.9, "page-size": None}
    assert dict(found.env) == {"NCCL_PROTO": "LL"}


def test_production_ignores_the_spelling_of_variables(production):
    server = {"flags": {"tp-size": 8}, "env": {"NCCL_P2P_LEVEL": "SYS"}}
    assert production(f"NCCL_P2P_LEVEL=4 {SERVE}", server=server) == Configuration.of()


def test_production_ignores_address_keys_and_secrets(production):
    server = {"flags": {"tp-size": 8, "port": 1, "api-key": "$SGLANG_API_KEY"}}
    own = "--host :: --ssl-certfile c --admin-api-key $KEY"
    command = f"HF_TOKEN=$HF_TOKEN http_proxy=$http_proxy {SERVE} {own}"
    assert production(command, server=server) == Configuration.of()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", Speculation()),
        ("--speculative-algorithm NEXTN", Speculation("EAGLE")),
        (STEPS, Speculation()),
        (f"--speculative-algo eagle3 {STEPS}", Speculation("EAGLE3", 3, 1, 4)),
        (
            "--speculative-algorithm DFLASH --speculative-dflash-block-size 8",
            Speculation("DFLASH", None, None, 8),
        ),
        (
            "--speculative-algorithm DSPARK --speculative-dspark-block-size 7",
            Speculation("DSPARK", None, None, 8),
        ),
    ],
)
def test_the_speculation_of_flags(flags, expected):
    assert speculation_of(read_launch_text(f"{SERVE} {flags}").flags) == expected


def test_sglangs_defaults_are_filled_in_and_may_be_another_baseline(make_study):
    study = make_study(production={"command": f"{SERVE} {EAGLE3}"})
    found = baselines(study)
    assert found["production"] == found["default"]
    assert found["production"].speculation == Speculation("EAGLE3", 3, 1, 4)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("vllm serve org/target", "another engine"),
        ("python -m sglang.launch_server --tp 8", "names no model"),
        (
            SERVE.replace("org/target", "org/else"),
            "serves org/else, but `model.path` is org/target",
        ),
        (f"{SERVE} --config x.yaml", "does not read the file of `--config x.yaml`"),
        (f"{SERVE} --page-size $P --host $H", "$P, $H is not set in the command"),
        (f"{SERVE} {EAGLE3}x", "uses the draft org/draftx, but `model.draft` is org/draft"),
        (f"{SERVE} --speculative-algorithm NEXTN", "names no draft model"),
        (f"{SERVE} --speculative-algorithm EAGLE4", "did you mean `EAGLE`?"),
        (f"{SERVE} {EAGLE3} --speculative-num-steps three", "a whole number, not 'three'"),
        (f"{SERVE} --nnodes 2 --node-rank 0", "runs on 2 nodes"),
    ],
)
def test_a_command_that_does_not_fit_the_study_is_refused(make_study, command, message):
    with pytest.raises(StudyFileError) as caught:
        make_study(production={"command": command})
    problem = next(p for p in caught.value.problems if message in p.message)
    assert problem.key == "production.command"
    assert problem.line is not None
    assert problem.line > 1


def test_a_command_with_a_draft_needs_a_draft_in_the_study(make_study):
    with pytest.raises(StudyFileError, match=r"model: {draft: org/draft}"):
        make_study(
            model={"path": "org/target", "family": "other"},
            space={"speculation": [{"algorithm": "none"}]},
            production={"command": f"{SERVE} {EAGLE3}"},
        )


def test_unset_variables_of_container_options_are_ignored(production):
    assert production(f"docker run -v $PWD:/x img {SERVE}") == Configuration.of()


def test_a_command_that_breaks_a_rule_gives_a_warning(make_study):
    tree = "--speculative-num-steps 1 --speculative-eagle-topk 2 --speculative-num-draft-tokens 64"
    study = make_study(production={"command": f"{SERVE} {EAGLE3} {tree} --stream-output"})
    assert baselines(study)["production"].speculation == Speculation("EAGLE3", 1, 2, 64)
    said = tuple(production_warnings(study))
    assert set(said) <= set(warnings(study))
    assert "`--stream-output` is a flag of SGLang 0.5.9 to 0.5.17" in said[0]
    assert "tree_capacity" in said[1]
    assert "measures it anyway" in said[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.85, "0.850", True),
        (8, "8", True),
        ('{"a": 1}', '{"a":1}', True),
        ((1, 2), (1, 2), True),
        ((64,), 64, True),
        ((1, 2), (2, 1), False),
        (True, 1, False),
        (True, True, True),
        (None, None, True),
        (None, "x", False),
        ("1e1", 10, True),
        ("nan", "nan", True),
    ],
)
def test_equal_values_on_a_command_line(one, other, same):
    assert same_value(one, other) is same
    assert same_value(other, one) is same


def started(command: str, sections: dict) -> LaunchText:
    """The production baseline's own command, read again."""
    text = json.dumps(study_dict(**sections, production={"command": command}))
    study = parse_study(text, "today.yaml")
    line = shell(sglang_command(study, baselines(study)["production"], python="python"))
    return read_launch_text(line)


def filled_in(read: LaunchText) -> LaunchText:
    """The command with something in place of what its text does not set."""
    line = read.text
    for name in read.variables:
        number = {"GROUP_SIZE": 2, "WORKER_INDEX": 0, "POD_INDEX": 0, "NODEID": 0, "PROCID": 0}
        value = next((v for part, v in number.items() if part in name), 8)
        whole = "org/m" if "MODEL" in name else value
        filled = f"{name}={whole}\n{line}"
        line = line.replace(f"${name}", "head") if name.startswith("(") else filled
    found = read_launch_text(line)
    assert found.variables == ()
    return found


def for_trials(read: LaunchText) -> tuple[dict, dict]:
    """What a trial's server has of a command: not its address, nor its secrets."""
    flags = {n: v for n, v in read.flags.items() if not is_export_only(n)}
    if flags.get("speculative-algorithm") == "NEXTN":
        flags["speculative-algorithm"] = "EAGLE"  # one name for both, in SGLang too
    env = {n: v for n, v in read.env.items() if v is not None and not is_secret(n)}
    return flags, dict(canonical_env(env, {}))


@pytest.mark.parametrize("name", sorted(path.name for path in COMMANDS.iterdir()))
@pytest.mark.parametrize("fixed", ["something else", "all of it"])
def test_the_baseline_starts_exactly_todays_flags(name, fixed):
    today = filled_in(read_launch_text((COMMANDS / name).read_text()))
    flags, env = for_trials(today)
    model = {"path": flags["model-path"], "family": "other"}
    if (draft := flags.get("speculative-draft-model-path")) is not None:
        model["draft"] = draft
    server = {
        "something else": {
            "flags": {"tp-size": 1, "log-level": "error", "mem-fraction-static": 0.5},
            "env": {"OMP_NUM_THREADS": "3", "NCCL_ALGO": "Ring"},
        },
        "all of it": {
            "flags": {
                n: list(v) if isinstance(v, tuple) else v
                for n, v in flags.items()
                if n != "model-path" and not n.startswith("speculative-")
            },
            "env": env,
        },
    }[fixed]
    if "nnodes" in flags:
        several = {n: flags[n] for n in ("nnodes", "tp-size")}
        server = {**server, "flags": {**server.get("flags", {}), **several}}
    space = {"speculation": [{"algorithm": "none"}]}
    again = started(today.text, {"model": model, "server": server, "space": space})
    assert for_trials(again) == (flags, env)


@given(
    st.dictionaries(
        st.sampled_from(
            ["stream-interval", "context-length", "max-running-requests", "watchdog-timeout"]
        ),
        st.integers(1, 4096),
    ),
    st.dictionaries(st.sampled_from(["A", "B", "C"]), st.text("ab1 ,.", max_size=4)),
    st.data(),
)
@settings(max_examples=20, deadline=None)
def test_the_production_baseline_is_independent_of_fixed_flags(flags, env, data):
    words = " ".join(f"--{name} {value}" for name, value in flags.items())
    sets = " ".join(f"{name}='{value}'" for name, value in env.items())
    fixed = {
        n: v + data.draw(st.integers(0, 1)) for n, v in flags.items() if data.draw(st.booleans())
    }
    server = {
        "flags": {"tp-size": 4, "page-size": 1, **fixed},
        "env": {"A": "b"} if data.draw(st.booleans()) else {},
    }
    read = started(f"{sets} {SERVE} {words}", {"server": server})
    assert for_trials(read)[0] == {"model-path": "org/target", "tp-size": 8, **flags}
    assert {n: v for n, v in read.env.items() if v is not None} == env


def test_production_prefix_and_flag_values_give_warnings():
    def said(command, **server):
        text = json.dumps(study_dict(server=server, production={"command": command}))
        return " ".join(production_warnings(parse_study(text, "s.yaml")))

    pinned = said("numactl -N 1 " + SERVE, prefix=["numactl", "-N", "0"])
    assert "the prefix `numactl -N 1`, but server.prefix is the prefix `numactl -N 0`" in pinned
    assert "server.prefix is no prefix" in said("taskset -c 0 " + SERVE)
    assert said("numactl -N 0 " + SERVE, prefix=["numactl", "-N", "0"]) == ""
    assert said("docker exec s " + SERVE) == ""
    assert "did you mean `flashinfer`" in said(SERVE + " --attention-backend flashinver")
