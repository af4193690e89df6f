"""Messages about mistakes in study files: key, line and remedy."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import load_study, parse_study

GOOD = """\
study: kimi
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:
  flags: {tp-size: 8, max-running-requests: 64}
  env: {}
space:
  speculation:
    - algorithm: none
    - algorithm: EAGLE3
      num_steps: {from: 1, to: 5}
      topk: [1, 2]
      num_draft_tokens: [4, 8]
  draft_tp: [8]
  flags: {}
  env: {NCCL_PROTO: [null, LL]}
workload:
  prompts: {chat: 0.5, code: 0.5}
  output_tokens: 256
  points: [{concurrency: 1}]
objective: {maximize: output_tok_s, subject_to: {ttft_p95_ms: 2000}}
budget: {launches: 24, hours: 6}
runner: sglang
"""


class Mistake(NamedTuple):
    old: str
    new: str
    key: str
    line: int | None
    says: str


MISTAKES = {
    "budget in trials": Mistake(
        "launches: 24, hours", "trials: 24, launches: 24, hours", "budget.trials", 21, "`launches`"
    ),
    "unknown key, near": Mistake(
        "  output_tokens: 256", "  output_token: 256\n  output_tokens: 256",
        "workload.output_token", 18, "did you mean `output_tokens`?",
    ),
    "unknown section": Mistake(
        "runner: sglang", "gpu: H200", "gpu", 22, "valid: study, model, server"
    ),
    "unknown key in a sub-space": Mistake(
        "      topk: [1, 2]", "      topk: [1, 2]\n      steps: 3",
        "space.speculation[1].steps", 12, "`num_steps`",
    ),
    "section left out": Mistake(
        "budget: {launches: 24, hours: 6}\n", "", "budget", 1, "such as `budget: {launches: 24"
    ),
    "key left out": Mistake(
        "{path: moonshotai/Kimi-K2.5, draft", "{draft", "model.path", 2, "Missing, such as `path:"
    ),
    "section left empty": Mistake(
        "objective: {maximize: output_tok_s, subject_to: {ttft_p95_ms: 2000}}", "objective:",
        "objective", 20, "not nothing",
    ),
    "text for a number": Mistake(
        "launches: 24", "launches: many", "budget.launches", 21, "a whole number"
    ),
    "quoted number": Mistake(
        "launches: 24", 'launches: "24"', "budget.launches", 21, "a whole number"
    ),
    "boolean for a number": Mistake(
        "output_tokens: 256", "output_tokens: yes", "workload.output_tokens", 18, "a whole number"
    ),
    "no tokens": Mistake(
        "output_tokens: 256", "output_tokens: 0",
        "workload.output_tokens", 18, "at least 1, not 0",
    ),
    "text for answer lengths": Mistake(
        "output_tokens: 256", "output_tokens: abc",
        "workload.output_tokens", 18, "a whole number, such as `output_tokens: 256`, not 'abc'",
    ),
    "list for answer lengths": Mistake(
        "output_tokens: 256", "output_tokens: [256]",
        "workload.output_tokens", 18, "a whole number",
    ),
    "spread without a mean": Mistake(
        "output_tokens: 256", "output_tokens: {spread: 0.2}",
        "workload.output_tokens.mean", 18, "Missing, such as `output_tokens: {mean: 256, ",
    ),
    "spread above the mean": Mistake(
        "output_tokens: 256", "output_tokens: {mean: 64, spread: 1.5}",
        "workload.output_tokens.spread", 18, "less than 1, not 1.5",
    ),
    "negative spread": Mistake(
        "output_tokens: 256", "output_tokens: {mean: 64, spread: -0.1}",
        "workload.output_tokens.spread", 18, "at least 0, not -0.1",
    ),
    "misspelled spread": Mistake(
        "output_tokens: 256", "output_tokens: {mean: 64, spred: 0.1}",
        "workload.output_tokens.spred", 18, "did you mean `spread`?",
    ),
    "nothing to spend": Mistake(
        "launches: 24", "launches: 0", "budget.launches", 21, "at least 1, not 0"
    ),
    "unquoted no": Mistake(
        "[null, LL]", "[null, no]", "space.env.NCCL_PROTO[1]", 15, "variable's text in quotes"
    ),
    "unquoted on under server": Mistake(
        "  env: {}\nspace", "  env: {FOO: on}\nspace", "server.env.FOO", 5, "in quotes"
    ),
    "one value where choices are wanted": Mistake(
        "[null, LL]", "LL", "space.env.NCCL_PROTO", 15, "a list of choices, such as [null, 'LL']"
    ),
    "choices where one value is wanted": Mistake(
        "  env: {}\nspace", "  env: {FOO: [a, b]}\nspace", "server.env.FOO", 5, "Must be text"
    ),
    "no choices": Mistake("[null, LL]", "[]", "space.env.NCCL_PROTO", 15, "at least one choice"),
    "not a variable's name": Mistake(
        "NCCL_PROTO:", "NCCL-PROTO:", "space.env.NCCL-PROTO", 15, "not a variable name"
    ),
    "the launch mark": Mistake(
        "NCCL_PROTO: [null, LL]", "TUNER_LAUNCH: [a]", "space.env.TUNER_LAUNCH", 15, "remove it"
    ),
    "a range backwards": Mistake(
        "{from: 1, to: 5}", "{from: 5, to: 1}", "space.speculation[1].num_steps.to", 10,
        "swap the numbers"
    ),
    "half a range": Mistake(
        "{from: 1, to: 5}", "{from: 1}", "space.speculation[1].num_steps", 10, "{from: 1, to: 10}"
    ),
    "a word in a range": Mistake(
        "{from: 1, to: 5}", "{from: 1, until: 5}", "space.speculation[1].num_steps.until", 10,
        "valid: from, to, step",
    ),
    "a half step": Mistake(
        "topk: [1, 2]", "topk: [1, 2.5]", "space.speculation[1].topk[1]", 11, "not 2.5"
    ),
    "zero steps": Mistake(
        "{from: 1, to: 5}", "{from: 0, to: 5}", "space.speculation[1].num_steps", 10,
        "write `algorithm: none`",
    ),
    "an algorithm misspelled": Mistake(
        "algorithm: EAGLE3", "algorithm: EAGEL3", "space.speculation[1].algorithm", 9,
        "did you mean `EAGLE3`?",
    ),
    "no algorithm": Mistake(
        "algorithm: EAGLE3", "algorithm:", "space.speculation[1].algorithm", 9, "EAGLE3 or none"
    ),
    "no draft": Mistake(
        ", draft: lightseekorg/kimi-k2.5-eagle3", "", "space.speculation[1].algorithm", 9,
        "EAGLE3 needs a draft model",
    ),
    "topk left out": Mistake(
        "      topk: [1, 2]\n", "", "space.speculation[1]", 9, "topk is missing"
    ),
    "tree without tokens": Mistake(
        "      num_draft_tokens: [4, 8]\n", "", "space.speculation[1]", 9,
        "num_draft_tokens is missing: topk 2",
    ),
    "numbers for none": Mistake(
        "- algorithm: none", "- {algorithm: none, topk: 1}", "space.speculation[0].topk", 8,
        "takes no numbers",
    ),
    "speculation among the flags": Mistake(
        "tp-size: 8,", "tp-size: 8, --speculative_num_steps: 3,",
        "server.flags.--speculative_num_steps", 4, "`num_steps` in a sub-space",
    ),
    "the model among the flags": Mistake(
        "tp-size: 8,", "tp-size: 8, model: x,", "server.flags.model", 4, "`model: {path: ...}`"
    ),
    "a port to be searched": Mistake(
        "  flags: {}\n", "  flags: {port: [1, 2]}\n", "space.flags.port", 14, "under `server.flags`"
    ),
    "a flag both fixed and searched": Mistake(
        "  flags: {}\n", "  flags: {tensor_parallel_size: [4, 8]}\n",
        "space.flags.tensor_parallel_size", 14, "Also under `server.flags`",
    ),
    "a variable both fixed and searched": Mistake(
        "  env: {}\nspace", "  env: {NCCL_PROTO: LL}\nspace", "space.env.NCCL_PROTO", 15,
        "Also under `server.env`",
    ),
    "one flag in two spellings": Mistake(
        "tp-size: 8,", "tp-size: 8, tp_size: 4,", "server.flags.tp_size", 4, "flag as 'tp-size'"
    ),
    "choices that Python takes for one": Mistake(
        "  flags: {}\n", "  flags: {foo: [1, true]}\n", "space.flags.foo", 14, "differ only in type"
    ),
    "draft does not fit": Mistake(
        "draft_tp: [8]", "draft_tp: [8, 3]", "space.draft_tp", 13, "3 does not divide"
    ),
    "prompts misspelled": Mistake(
        "chat: 0.5", "chats: 0.5", "workload.prompts.chats", 17, "did you mean `chat`?"
    ),
    "no share": Mistake("chat: 0.5", "chat: 0", "workload.prompts.chat", 17, "more than 0, not 0"),
    "a point twice": Mistake(
        "[{concurrency: 1}]", "[{concurrency: 1}, {concurrency: 1}]",
        "workload.points[1].concurrency", 19, "is repeated",
    ),
    "an unknown limit": Mistake(
        "ttft_p95_ms", "ttft_p90_ms", "objective.subject_to.ttft_p90_ms", 20, "mean `ttft_p9"
    ),
    "another objective": Mistake(
        "maximize: output_tok_s", "maximize: goodput", "objective.maximize", 20, "'output_tok_s'"
    ),
    "a key twice": Mistake(
        "  output_tokens: 256", "  output_tokens: 256\n  output_tokens: 128",
        "workload.output_tokens", 19, "Duplicate key (first on line 18)",
    ),
    "a name with a slash": Mistake("study: kimi", "study: a/b", "study", 1, "letters, digits"),
    "a bracket left open": Mistake("draft_tp: [8]", "draft_tp: [8", "", 14, "Not YAML"),
    "indented with a tab": Mistake("  env: {}\nspace", "\tenv: {}\nspace", "", 5, "with spaces"),
    "not a port": Mistake(
        "tp-size: 8,", "tp-size: 8, port: 70000,", "server.flags.port", 4, "from 1 to 65535"
    ),
    "too large": Mistake(
        "  flags: {}\n",
        f"  flags: {{a: {list(range(500))}, b: {list(range(500))}}}\n",
        "space", 6, "more than 50,000; search fewer",
    ),
    "nothing legal": Mistake(
        "    - algorithm: none\n    - algorithm: EAGLE3\n      num_steps: {from: 1, to: 5}\n"
        "      topk: [1, 2]\n      num_draft_tokens: [4, 8]",
        "    - {algorithm: EAGLE3, num_steps: 1, topk: 2, num_draft_tokens: 8}",
        "space", 6, "tree_capacity",
    ),
    "a quote left open": Mistake(
        "study: kimi", 'study: "kimi', "", 23, "a quoted scalar that begins on line 1"
    ),
    "an unknown protocol": Mistake(
        "[null, LL]", "[null, LL182]", "space.env.NCCL_PROTO[1]", 15, "did you mean `LL128`?"
    ),
    "a blank in a list of protocols": Mistake(
        "[null, LL]", '[null, "LL, Simple"]', "space.env.NCCL_PROTO[1]", 15, "remove them"
    ),
    "one protocol in two spellings": Mistake(
        "[null, LL]", '["LL,Simple", "simple,ll"]', "space.env.NCCL_PROTO[1]", 15,
        "Same value as choice 1 (LL,Simple)",
    ),
    "an algorithm for all-reduce alone": Mistake(
        "NCCL_PROTO: [null, LL]", "NCCL_ALGO: [null, Tree]", "space.env.NCCL_ALGO[1]", 15,
        "write `ring,tree;allreduce:tree`",
    ),
    "a collective misspelled": Mistake(
        "NCCL_PROTO: [null, LL]", 'NCCL_ALGO: ["ring,tree;all_reduce:tree"]',
        "space.env.NCCL_ALGO[0]", 15, "did you mean `AllReduce`?",
    ),
    "a level in small letters": Mistake(
        "NCCL_PROTO: [null, LL]", "NCCL_P2P_LEVEL: [null, sys]", "space.env.NCCL_P2P_LEVEL[1]", 15,
        "write SYS",
    ),
    "a level misspelled": Mistake(
        "NCCL_PROTO: [null, LL]", "NCCL_P2P_LEVEL: [null, PBH]", "space.env.NCCL_P2P_LEVEL[1]", 15,
        "did you mean `PHB`?",
    ),
    "a word that NCCL reads as 0": Mistake(
        "NCCL_PROTO: [null, LL]", "NCCL_MIN_NCHANNELS: [null, abc]",
        "space.env.NCCL_MIN_NCHANNELS[1]", 15, "a whole number from 1 to 64, such as 8",
    ),
    "a size with its unit": Mistake(
        "  env: {}\nspace", "  env: {NCCL_BUFFSIZE: 8M}\nspace", "server.env.NCCL_BUFFSIZE", 5,
        "write 8388608",
    ),
    "a word for 1": Mistake(
        "  env: {}\nspace", '  env: {NCCL_P2P_DISABLE: "true"}\nspace',
        "server.env.NCCL_P2P_DISABLE", 5, "as 0: write 1",
    ),
    "minimum above maximum": Mistake(
        "  env: {}\nspace", "  env: {NCCL_MIN_NCHANNELS: 16, NCCL_MAX_NCHANNELS: 8}\nspace",
        "server.env.NCCL_MAX_NCHANNELS", 5, "a minimum that is not above the maximum",
    ),
    "choices above and below": Mistake(
        "NCCL_PROTO: [null, LL]", "NCCL_MIN_NCHANNELS: [16], NCCL_MAX_NCHANNELS: [4, 8]",
        "space.env.NCCL_MAX_NCHANNELS", 15, "No choice is valid: NCCL_MIN_NCHANNELS 16",
    ),
    "a choice that is not looked at": Mistake(
        "NCCL_PROTO: [null, LL]",
        "NCCL_P2P_LEVEL: [null, LOC, SYS], NCCL_P2P_DISABLE: [null, 1]",
        "space.env.NCCL_P2P_LEVEL[1]", 15, "remove LOC",
    ),
    "a flag's choice misspelled": Mistake(
        "tp-size: 8,", "tp-size: 8, attention-backend: flashinfr,",
        "server.flags.attention-backend", 4, "did you mean `flashinfer`?",
    ),
    "the beginning of a flag's choice": Mistake(
        "tp-size: 8,", "tp-size: 8, kv_cache_dtype: fp8,", "server.flags.kv_cache_dtype", 4,
        "`fp8_e5m2`, `fp8_e4m3` begin with it",
    ),
    "a word for a number of GPUs": Mistake(
        "tp-size: 8,", "tp-size: eight,", "server.flags.tp-size", 4, "a whole number of GPUs"
    ),
    "a word for a flag's number": Mistake(
        "  flags: {}\n", "  flags: {page-size: [16, x]}\n", "space.flags.page-size[1]", 14,
        "Takes a whole number, not 'x'",
    ),
    "a number in other letters": Mistake(
        "tp-size: 8,", "tp-size: 8, context-length: 32K,", "server.flags.context-length", 4,
        "such as 32k (32,000) or 32Ki (32,768)",
    ),
    "numbers in one word": Mistake(
        "tp-size: 8,", 'tp-size: 8, cuda-graph-bs-decode: "1 2 4",',
        "server.flags.cuda-graph-bs-decode", 4, "several are a list, `[1, 2, 4]`",
    ),
    "a switch with a value": Mistake(
        "tp-size: 8,", "tp-size: 8, disable-radix-cache: 1,", "server.flags.disable-radix-cache", 4,
        "write `true`, or null",
    ),
    "a flag without its value": Mistake(
        "tp-size: 8,", "tp-size: 8, mem-fraction-static: true,",
        "server.flags.mem-fraction-static", 4, "takes a number",
    ),
    "a switch that is on by itself": Mistake(
        "tp-size: 8,", "tp-size: 8, enable-tf32-matmul: false,",
        "server.flags.enable-tf32-matmul", 4, "write `no-enable-tf32-matmul: true`",
    ),
    "flags of one sub-space": Mistake(
        "      num_draft_tokens: [4, 8]",
        "      num_draft_tokens: [4, 8]\n      flags: {speculative-adaptive: true}",
        "space.speculation[1].flags.speculative-adaptive", 13, "such as [null, true]",
    ),
    "a latency to be maximized": Mistake(
        "maximize: output_tok_s", "maximize: ttft_p95_ms", "objective.maximize", 20,
        "write `minimize: ttft_p95_ms`",
    ),
    "a rate to be minimized": Mistake(
        "maximize: output_tok_s", "minimize: output_tok_s", "objective.minimize", 20,
        "write `objective: {maximize: output_tok_s}`",
    ),
    "a rate as a limit": Mistake(
        "ttft_p95_ms: 2000", "output_tok_s: 90", "objective.subject_to.output_tok_s", 20,
        "write `objective: {maximize: output_tok_s}`",
    ),
    "goodput without limits": Mistake(
        "maximize: output_tok_s", "maximize: goodput_request_s", "objective.maximize", 20,
        "write `workload: {goodput: {ttft_ms: 500, tpot_ms: 50}}`",
    ),
    "a limit in seconds": Mistake(
        "ttft_p95_ms: 2000", "ttft_p95_ms: 0.5", "objective.subject_to.ttft_p95_ms", 20, "write 500"
    ),
    "limits the wrong way round": Mistake(
        "ttft_p95_ms: 2000", "ttft_p95_ms: 500, ttft_p99_ms: 200",
        "objective.subject_to.ttft_p95_ms", 20, "swap the numbers",
    ),
    "a limit that the whole keeps": Mistake(
        "ttft_p95_ms: 2000", "ttft_p95_ms: 2000, e2e_p99_ms: 1500",
        "objective.subject_to.ttft_p95_ms", 20, "e2e_p99_ms is never below ttft_p95_ms",
    ),
    "a goodput limit that the whole keeps": Mistake(
        "  points:", "  goodput: {ttft_ms: 2000, e2e_ms: 500}\n  points:",
        "workload.goodput.ttft_ms", 19, "within 500 ms",
    ),
    "tokens per second of what arrives": Mistake(
        "{concurrency: 1}", "{request_rate: 4}", "workload.points[0]", 19,
        "write `objective: {maximize: goodput_request_s}`",
    ),
    "no weight": Mistake(
        "{concurrency: 1}", "{concurrency: 1, weight: 0}", "workload.points[0].weight", 19,
        "remove the point",
    ),
    "no time": Mistake("hours: 6", "hours: 0", "budget.hours", 21, "remove it for no limit"),
    "two kinds of load": Mistake(
        "{concurrency: 1}", "{concurrency: 1, request_rate: 4}",
        "workload.points[0].request_rate", 19, "keep one",
    ),
    "half a condition": Mistake(
        "draft_tp: [8]", "draft_tp: [8]\n  conditions: [{when: {topk: 2}}]",
        "space.conditions[0].then", 14, "Missing, such as `then:",
    ),
    "a command for its section": Mistake(
        "runner: sglang", 'runner: sglang\nproduction: "python -m sglang.launch_server"',
        "production", 23, 'such as `production: {command: "python',
    ),
    "another engine's command": Mistake(
        "runner: sglang", 'runner: sglang\nproduction: {command: "vllm serve x"}',
        "production.command", 23, "another engine",
    ),
}  # fmt: skip


ADVICE = re.compile(
    r"write|keep|leave|remove|use|correct"
    r"|did you mean|valid|such as|swap|take|must|needs|belong|found|begin with"
    r"|takes|search|at most|missing|more than|save|expected|give",
    re.IGNORECASE,
)


def messages(text):
    with pytest.raises(StudyFileError) as caught:
        parse_study(text, "bad.yaml")
    return [problem.message for problem in caught.value.problems]


def test_messages_are_specific_and_name_a_remedy():
    told = [messages(GOOD.replace(m.old, m.new)) for m in MISTAKES.values()]
    assert len(told) >= 80
    assert all(ADVICE.search(message) for several in told for message in several)
    shapes = {re.sub(r"'[^']*'|`[^`]*`|[0-9]+", "*", message) for message, *_ in told}
    assert len(shapes) >= 60


def test_the_good_file_is_good():
    assert parse_study(GOOD, "good.yaml").name == "kimi"


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_have_key_line_and_remedy(mistake):
    assert GOOD.count(mistake.old) == 1
    with pytest.raises(StudyFileError) as caught:
        parse_study(GOOD.replace(mistake.old, mistake.new), "bad.yaml")
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == (mistake.key, mistake.line)
    assert mistake.says in problem.message
    where = "bad.yaml" if mistake.line is None else f"bad.yaml:{mistake.line}"
    assert str(caught.value).startswith(where)


def test_all_mistakes_are_reported_together():
    text = (
        GOOD.replace("study: kimi", "study: a/b")
        .replace(", draft: lightseekorg/kimi-k2.5-eagle3", "")
        .replace("output_tokens: 256", "output_tokens: 0")
        .replace("launches: 24", "trials: 24")
        .replace("tp-size: 8", "model-path: x")
    )
    with pytest.raises(StudyFileError) as caught:
        parse_study(text, "bad.yaml")
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (1, "study"),
        (4, "server.flags.model-path"),
        (9, "space.speculation[1].algorithm"),
        (13, "space.draft_tp"),
        (18, "workload.output_tokens"),
        (21, "budget.launches"),
        (21, "budget.trials"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), ("# only a comment\n", "empty"), ("- a\n- b\n", "not a mapping")],
)
def test_a_file_without_a_study_is_refused(text, says):
    with pytest.raises(StudyFileError, match=says):
        parse_study(text, "bad.yaml")


def test_an_alias_of_itself_is_refused():
    with pytest.raises(StudyFileError) as caught:
        parse_study(GOOD.replace("env: {}\nspace", "env: &e {A: *e}\nspace"), "bad.yaml")
    assert any("contains itself" in p.message for p in caught.value.problems)


def test_nested_aliases_are_limited():
    names = "abcdefgh"
    lines = [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in itertools.pairwise(names)]
    with pytest.raises(StudyFileError, match="Aliases expand to more than 100,000 values"):
        parse_study("\n".join(["a: &a [1, 1, 1]", *lines]), "s.yaml")


def test_an_unknown_study_name_lists_the_shipped_studies():
    with pytest.raises(
        StudyFileError, match=r"No shipped study is named 'kimmi'; did you mean `kimi`\?"
    ):
        load_study("kimmi")


@pytest.mark.parametrize("name", ["my-llama.yaml", "my-llama.yml"])
def test_an_unknown_study_name_suggests_a_local_file(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyFileError, match=f"for the file {name} write ./{name}"):
        load_study("my-llama")
    assert load_study(f"./{name}").source == f"./{name}"


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(StudyFileError, match="No such file"):
        load_study(tmp_path / "none.yaml")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(StudyFileError, match="Cannot read"):
        load_study(tmp_path)


def test_a_binary_file_is_refused(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_bytes(b"study: \xff\xfe")
    with pytest.raises(StudyFileError, match=r"Not UTF-8 text \(byte 7\)"):
        load_study(file)


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.dates(),
        st.sampled_from(["", "none", "EAGLE3", "no", "a{b}", "\u00fc", "1"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(data, path=()):
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from places(value, (*path, index))


def problems_in(text):
    try:
        parse_study(text, "drawn.yaml")
    except StudyFileError as error:
        return error.problems or ("refused without a problem",)
    return ()


PLACES = [path for path in places(yaml.safe_load(GOOD)) if path]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PLACES), values)
def test_random_values_give_a_study_or_problems(path, value):
    data = yaml.safe_load(GOOD)
    place = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert all(p.message and p.line for p in problems_in(yaml.safe_dump(data)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 8), st.text(max_size=4))
def test_random_typos_give_a_study_or_problems(at, length, typed):
    assert all(p.message for p in problems_in(GOOD[:at] + typed + GOOD[at + length :]))


def test_a_list_of_wrong_items_is_not_reported_as_empty():
    wrong = GOOD.replace("points: [{concurrency: 1}]", "points: [1, 16]")
    with pytest.raises(StudyFileError) as error:
        parse_study(wrong, "study.yaml")
    assert [p.key for p in error.value.problems] == ["workload.points[0]", "workload.points[1]"]
