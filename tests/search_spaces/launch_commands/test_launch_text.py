"""Forms in which a launch command is pasted, one by one."""

from __future__ import annotations

import pytest

from search_spaces.flags.options import RENAMED, REPLACED, VERSIONS, options
from search_spaces.launch_commands import Container, UnreadableCommandError, read_launch_text

BASE = "python -m sglang.launch_server --model-path org/m --tp 8"
FLAGS = {"model-path": "org/m", "tp-size": 8}


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        f"$ {BASE}",
        f"user@host:~/work$ {BASE}",
        f"(venv) root@gpu-1:/sgl# {BASE}",
        "$ python -m sglang.launch_server \\\n> --model-path org/m \\\n> --tp 8",
        f"Run this:\n\n```bash\n{BASE}\n```\n\nand don't wait.",
        f"It's best to start it like so:\n{BASE}\nThat's all.",
        "python -m sglang.launch_server\u00a0--model-path org/m \u2013tp 8",
        "python -m sglang.launch_server \u2014model-path \u201corg/m\u201d \u2212\u2212tp 8",
        "python -m sglang.launch_server \\\r\n  --model-path org/m \\\r\n  --tp 8\r\n",
        "python -m sglang.launch_server \\  \n  --model-path org/m \\ # the model\n  --tp 8",
        "python -m sglang.launch_server \\\n  --model-path org/m \\\n  # --tp 4 \\\n  --tp 8",
        "python -m sglang.launch_server\n  --model-path org/m\n  --tp 8",
        f"- {BASE}",
        f"{BASE} > server.log 2>&1 &",
        f"{BASE} 2>&1 | tee server.log",
        f"cd /sgl && ulimit -n 65535; {BASE} || exit 1",
        f"if true; then\n  exec {BASE}\nfi",
        "M=org/m\nN=8\npython -m sglang.launch_server --model-path $M --tp ${N}",
        "TP=$((2 * 4)); python -m sglang.launch_server --model-path ${M:-org/m} --tp $TP",
        'A=(--model-path org/m)\nA+=(--tp 8)\npython -m sglang.launch_server "${A[@]}"',
        'A="--model-path org/m --tp 8"\npython -m sglang.launch_server $A',
        f"cat <<EOF > note\n'unclosed\nEOF\n{BASE}",
        f"# python -m sglang.launch_server --model-path org/other\n{BASE}",
        f"eval '{BASE}'",
        f"bash -lc '{BASE}'",
        "python -u -X dev -m sglang.launch_server --model org/m --tensor-parallel-size=8",
        "python -m sglang.launch_server --model_path org/m --tp_size 8",
        f"root  4711 98.2  1.5 123456 7890 ?  Sl  10:02  12:34 {BASE}",
        f"root  4711  4710  0 10:02 pts/0    00:12:34 {BASE}",
        f"4711 {BASE}",
        BASE.replace(" ", "\0") + "\0",
        str(BASE.split()).replace("'", '"'),
        f"sbatch --gres=gpu:8 --wrap='{BASE}'",
        '[Service]\nExecStart=python -m sglang.launch_server --model-path "org/m" \\\n  --tp 8',
        "python -m sglang.launch_server ^\n  --model-path org/m ^\n  --tp 8",
        "python -m sglang.launch_server `\r\n  --model-path org/m `\r\n  --tp 8",
        f"cat > run.sh <<'END'\nM=org/m\n{BASE.replace('org/m', '$M')}\nEND\nbash run.sh",
        f'{{"simulated": false, "command": "{BASE}", "notes": []}}',
        f'# exported\nsimulated: false\ncommand: "{BASE}"\nnotes: []',
        f"[program:sglang]\ncommand={BASE} ; the server\nautostart=true",
    ],
)
def test_it_is_the_same_command(text):
    read = read_launch_text(text)
    assert read.flags == FLAGS
    assert (read.python, read.env, read.prefix, read.container) == ("python", {}, (), None)


@pytest.mark.parametrize(
    ("text", "prefix", "env"),
    [
        (f"A=1 B='x y' {BASE}", (), {"A": "1", "B": "x y"}),
        (f"export A=1\nB=2\n{BASE}", (), {"A": "1"}),
        (f"set -a\nA=1\n{BASE}", (), {"A": "1"}),
        (f"export A=1; unset A; {BASE}", (), {"A": None}),
        (f"env -u B A=1 {BASE}", (), {"B": None, "A": "1"}),
        (f"sudo -E A=1 nohup {BASE}", ("sudo", "-E", "nohup"), {"A": "1"}),
        (f"numactl -N 0 -m 0 {BASE}", ("numactl", "-N", "0", "-m", "0"), {}),
        (f"taskset -c 0-31 {BASE}", ("taskset", "-c", "0-31"), {}),
        (f"uv run {BASE}", ("uv", "run"), {}),
        (f"conda run -n env {BASE}", ("conda", "run", "-n", "env"), {}),
        (f"nsys profile -o out {BASE}", ("nsys", "profile", "-o", "out"), {}),
        (f"srun --export=ALL,A=1 {BASE}", ("srun", "--export=ALL,A=1"), {"A": "1"}),
        (f"mpirun -np 1 -x A=1 {BASE}", ("mpirun", "-np", "1", "-x", "A=1"), {"A": "1"}),
        (f"srun -N1 bash -c 'A=1 {BASE}'", ("srun", "-N1"), {"A": "1"}),
        (f"ssh -p 22 me@gpu 'cd x && A=1 {BASE}'", ("ssh", "-p", "22", "me@gpu"), {"A": "1"}),
        (f"export PATH=/opt/bin:$PATH\n{BASE}", (), {}),
    ],
)
def test_what_stands_before_it(text, prefix, env):
    read = read_launch_text(text)
    assert (read.flags, read.prefix, read.env) == (FLAGS, prefix, env)
    again = read_launch_text(read.text)
    assert (again.prefix, again.env, again.text) == (prefix, env, read.text)


@pytest.mark.parametrize(
    ("text", "container", "env"),
    [
        (
            f"docker run -it --rm --gpus all -eA=1 --env B --env=C=3 -p 80:80 img:1 {BASE}",
            Container("docker run", "img:1", ("-it", "--rm", "--gpus", "all", "-p", "80:80")),
            {"A": "1", "C": "3"},
        ),
        (
            f"A=1 B=2 docker run -e A img {BASE}",
            Container("docker run", "img", ()),
            {"A": "1"},
        ),
        (
            f"sudo podman exec -e A=1 -w /x box bash -c 'C=2; {BASE}'",
            Container("podman exec", "box", ("-w", "/x")),
            {"A": "1"},
        ),
        (
            "docker run --entrypoint python img -m sglang.launch_server --model org/m --tp 8",
            Container("docker run", "img", ()),
            {},
        ),
        (
            "docker run --gpus all org/sglang:1 --model-path org/m --tp 8",
            Container("docker run", "org/sglang:1", ("--gpus", "all")),
            {},
        ),
        (
            f"kubectl -n ns exec -it pod-0 -c main -- env A=1 {BASE}",
            Container("kubectl exec", "pod-0", ("-it", "-c", "main")),
            {"A": "1"},
        ),
    ],
)
def test_the_container_around_it(text, container, env):
    read = read_launch_text(text)
    assert (read.flags, read.container, read.env) == (FLAGS, container, env)
    again = read_launch_text(read.text)
    assert (again.container, again.env, again.text) == (container, env, read.text)


def test_what_is_outside_of_a_container_does_not_reach_sglang():
    read = read_launch_text(f"export CUDA_VISIBLE_DEVICES=0\ndocker run img {BASE}")
    assert read.env == {}
    assert "CUDA_VISIBLE_DEVICES: set outside of the container" in read.notes[0]


def test_secrets_are_nowhere_in_what_is_read():
    text = (
        "HF_TOKEN=hf_abcdefghijklmnopqrst OTHER=hf_abcdefghijklmnopqrst srun "
        "--export=ALL,MY_SECRET=s3cr3t docker run -e AWS_SECRET_ACCESS_KEY=s3cr3t "
        f"-e HF_TOKEN=hf_abcdefghijklmnopqrst img {BASE} --api-key=s3cr3t --admin-api-key s3cr3t"
    )
    read = read_launch_text(text)
    assert "s3cr3t" not in repr(read)
    assert "abcdefghij" not in repr(read)
    assert set(read.secrets) == {"api-key", "admin-api-key", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}
    assert read.flags["api-key"] == "$SGLANG_API_KEY"
    assert read.variables == ()
    assert sum("is a secret; it is written as" in note for note in read.notes) == 4
    assert "is a secret" not in " ".join(read_launch_text(read.text).notes)
    assert read_launch_text(f'{BASE} --api-key "$KEY"').flags["api-key"] == "$KEY"


def test_a_quoted_dollar_sign_is_no_variable():
    read = read_launch_text(f"{BASE} --chat-template '$HOME/x' --served-model-name \"$NAME\"")
    assert (read.flags["chat-template"], read.flags["served-model-name"]) == ("$HOME/x", "$NAME")
    assert read.variables == ("NAME",)
    assert "'$HOME/x'" in read.text
    assert '"$NAME"' in read.text


@pytest.mark.parametrize(
    ("flag", "name", "value", "note"),
    [
        ("--speculative-algo EAGLE3", "speculative-algorithm", "EAGLE3", "is taken as short for"),
        ("--cuda-graph-bs 1 2 4", "cuda-graph-bs", (1, 2, 4), "SGLang 0.5.9 to 0.5.17"),
        ("--cuda-graph-bs-decode 8", "cuda-graph-bs-decode", 8, None),
        ("--torchao-config int4wo", "torchao-config", "int4wo", "0.5.23 does not have"),
        ("--page-sise 64", "page-sise", 64, "the nearest is `--page-size`"),
        ("--page-sise", "page-sise", True, "unknown to SGLang"),
        ("--no-lora-strict-loading", "no-lora-strict-loading", True, None),
        ("--config x.yaml", "config", "x.yaml", "are not read"),
        ("--mem-fraction-static .9", "mem-fraction-static", 0.9, None),
        ("--context-length 128k", "context-length", "128k", None),
        ("--stream-interval -1", "stream-interval", -1, None),
    ],
)
def test_a_flag(flag, name, value, note):
    read = read_launch_text(f"{BASE} {flag}")
    assert read.flags[name] == value
    assert read.flags.keys() == {*FLAGS, name}
    assert (note is None) == (read.notes == ())
    assert note is None or note in " ".join(read.notes)


def test_flags_that_were_replaced_are_gone_and_what_replaced_them_is_there():
    newest = options(VERSIONS[-1])
    assert not set(REPLACED) & set(newest)
    for place in REPLACED.values():
        assert place.strip("`").split()[0].lstrip("-") in newest
    assert set(RENAMED.values()) <= set(newest)


def test_flags_alone_and_the_model_alone():
    alone = read_launch_text("--model-path org/m \\\n --tp 8")
    assert alone.flags == FLAGS
    assert "names no program" in alone.notes[0]
    served = read_launch_text("sglang serve org/m --tp 8")
    assert (served.flags, served.python) == (FLAGS, None)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", None, "empty"),
        ("python train.py", None, "No command in it starts SGLang"),
        ("vllm serve org/m", None, "another engine"),
        ("python -m sglang.bench_serving --port 1", None, "measures a server"),
        ("python -m sglang_router.launch_router --worker-urls x", None, "a router"),
        ("echo 'never closed", "shell", "`'` on line 1 is opened and never closed"),
        ("services:\n  a: [", "compose", "This compose file is not YAML (line 2)"),
        ("{{ if x }}\napiVersion: v1\nkind: Pod", None, "`helm template`"),
        ("apiVersion: v1\nkind: Service", None, "No command in it starts SGLang"),
    ],
)
def test_what_cannot_be_read(text, kind, message):
    with pytest.raises(UnreadableCommandError) as caught:
        read_launch_text(text, kind=kind)
    assert message in str(caught.value)
    assert "looked for `python -m sglang.launch_server ...`" in str(caught.value)


COMPOSE = """\
x-env: &env {NCCL_DEBUG: INFO, NCCL_PROTO: LL}
x-all: &all
  image: lmsysorg/sglang:v0.5.23
  environment: {<<: *env, NCCL_PROTO: Simple}
x-gpu: &gpu {image: other, runtime: nvidia}
services:
  sglang:
    <<: [*all, *gpu]
    profiles: [gpu]
    command: python -m sglang.launch_server --model-path org/m --tp 8
"""


def test_what_a_compose_file_merges_is_read():
    read = read_launch_text(COMPOSE)
    assert read.flags == FLAGS
    assert read.env == {"NCCL_DEBUG": "INFO", "NCCL_PROTO": "Simple"}
    assert read.container == Container("compose", "lmsysorg/sglang:v0.5.23", (), "sglang")


def test_merges_without_end_end():
    doubled = "\n".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}]}}" for n in range(1, 60))
    service = f"services:\n  s: {{<<: *x59, command: {BASE}}}"
    assert read_launch_text(f"x0: &x0 {{image: i}}\n{doubled}\n{service}").flags == FLAGS
    with pytest.raises(UnreadableCommandError, match="not YAML"):
        read_launch_text(f"services:\n  s: &s {{<<: *s, command: {BASE}}}")


def test_quoted_variables_and_doubled_signs_of_a_unit():
    unit = (
        '[Service]\nEnvironment="NCCL_PROTO=LL" A=1 B="b c" "C=100%%"\n'
        "Environment=NCCL_ALGO=allreduce:tree;broadcast:ring\n"
        f"ExecStart={BASE} --served-model-name a%%b$$c"
    )
    read = read_launch_text(unit)
    assert read.env == {
        "NCCL_PROTO": "LL", "A": "1", "B": "b c", "C": "100%",
        "NCCL_ALGO": "allreduce:tree;broadcast:ring",
    }  # fmt: skip
    assert read.flags == FLAGS | {"served-model-name": "a%b$c"}


def test_variables_of_supervisord():
    read = read_launch_text(f'[program:s]\nenvironment=A="1",\n  B="b,c"\ncommand={BASE}')
    assert (read.flags, read.env) == (FLAGS, {"A": "1", "B": "b,c"})


def test_an_address_with_a_password_is_a_secret_as_a_whole():
    read = read_launch_text(f"http_proxy=http://me:w0rd@p:80 A=hf_abcdefghij0123456789 {BASE}")
    assert read.env == {"http_proxy": "$http_proxy", "A": "$A"}
    assert read.written_out == read.secrets == ("http_proxy", "A")
    assert read.variables == ()
    assert read.text == f'http_proxy="$http_proxy" A="$A" {BASE}'
    # The caller's own are passed on: nothing is to be set.
    assert read_launch_text(read.text).env == {}


def test_what_a_command_prints_is_one_value():
    read = read_launch_text(
        f"TP=$(nvidia-smi -L | wc -l)\n{BASE.replace(' 8', ' $TP')} --served-model-name a"
    )
    assert read.flags == FLAGS | {
        "tp-size": "$(nvidia-smi -L | wc -l)", "served-model-name": "a"
    }  # fmt: skip
    assert read.variables == ("(nvidia-smi -L | wc -l)",)
    assert read.text.endswith('--tp "$(nvidia-smi -L | wc -l)" --served-model-name a')


@pytest.mark.parametrize(
    "text",
    [
        "TP=$(nvidia-smi -L | wc -l)\nMODEL=org/other; MODEL+=x\n" + (start := "python -m "
        "sglang.launch_server --model-path $MODEL --tp $TP"),
        f"bash -c '{start}'",
        f"export TP=2 MODEL=b/c\n{start}",
        start.replace("$TP", "${TP:-2}"),
        f"TP=2 {start}",
        f"services:\n  s:\n    command: {start.replace('$TP', '${TP:-2}')}",
        f"FROM x\nARG MODEL=b/c\nENV TP=2\nCMD {start}",
        f"[Service]\nEnvironment=TP=2 MODEL=b/c\nExecStart={start}",
        ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env: [{name: TP, value: '2'}]\n"
         "    command: [python, -m, sglang.launch_server, --model-path, $(MODEL), --tp, $(TP)]"),
    ],
)  # fmt: skip
def test_a_given_value_wins_over_the_texts_own(text):
    read = read_launch_text(text, given={"TP": "8", "MODEL": "org/m"})
    assert read.flags == FLAGS
    assert read.variables == read.notes == ()
    assert {"2", "b/c"}.isdisjoint(read.env.values())


@pytest.mark.parametrize(
    "text",
    [
        (f'export SGLANG_API_KEY=sk-x SGLANG_SERVE_PORT=80\n{BASE} --api-key "$SGLANG_API_KEY" '
         "--port $SGLANG_SERVE_PORT"),
        f'SGLANG_API_KEY="$SGLANG_API_KEY" {BASE} --api-key "$SGLANG_API_KEY" --port 80',
        ("services:\n  s:\n    environment: [SGLANG_API_KEY]\n"
         f"    command: {BASE} --api-key $SGLANG_API_KEY --port 80"),
    ],
)  # fmt: skip
def test_a_variable_for_the_command_line_alone_is_none_of_the_servers(text):
    read = read_launch_text(text)
    assert read.env == {}
    assert read.text == f'{BASE} --api-key "$SGLANG_API_KEY" --port 80'
    # What SGLang reads itself, and what it does not read but is not used either, stays.
    own = {"SGLANG_HOST_IP": "1.2.3.4", "SGLANG_PROT": "80"}
    written = " ".join(f"{name}={value}" for name, value in own.items())
    assert read_launch_text(f"export {written}\n{BASE} --host $SGLANG_HOST_IP").env == own


TWO = {
    "compose": f"services:\n  a:\n    command: {BASE}\n  b:\n    command: {BASE} --port 1",
    "kubernetes": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
    f"  - {{name: a, command: [bash, -c, {BASE}]}}\n"
    f"  - {{name: b, command: [bash, -c, {BASE} --port 1]}}",
    "supervisor": f"[program:a]\ncommand={BASE}\n[program:b]\ncommand={BASE} --port 1",
}  # fmt: skip


@pytest.mark.parametrize("kind", TWO)
def test_of_two_services_one_can_be_named(kind):
    read = read_launch_text(TWO[kind])
    assert read.flags == FLAGS
    assert read.notes == (
        "The file starts SGLang in a, b; this is a. For another one: `--service b`",
    )
    read = read_launch_text(TWO[kind], service="b")
    assert read.flags == FLAGS | {"port": 1}
    assert read.notes == ()
    with pytest.raises(UnreadableCommandError, match=r"no service c in it; .* are a, b"):
        read_launch_text(TWO[kind], service="c")


def test_one_mistake_is_one_note():
    read = read_launch_text(f"{BASE} --mem-fracton-static 0.8")
    (note,) = read.notes
    assert "the nearest is `--mem-fraction-static`" in note
    assert "with the value `0.8`" in note
