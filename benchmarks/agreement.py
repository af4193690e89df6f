"""Whether our figures and those of `sglang.bench_serving` agree, on any running SGLang server.

    python benchmarks/agreement.py --url http://127.0.0.1:30000 --tokenizer MODEL
        [--sglang-python PYTHON] [--concurrency 1 8 64] [--rounds 3] [--output FILE.json]

Both send as many prompts of random token ids, of the same length, for answers of the same fixed
length, and take turns. `bench_serving` sends its first requests all at once, so that they stay in
step, and divides all output tokens by the time from the first request to the last answer. For the
comparison ours does the same (no warm-up of its own, so no stagger; the same whole is made of its
requests). "window" is what the tuner really measures: lanes staggered as in steady traffic, without
ramp and drain.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.load import Prompt, PromptSource, bench
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from results.records import Measurement

FIGURES = ("output_tok_s", "ttft_p50_ms", "tpot_p50_ms", "accept_length")


class RandomIds(PromptSource):
    """Prompts of random token ids that share nothing."""

    def __init__(self, tokens: int, largest: int, salt: int) -> None:
        self._tokens = tokens
        self._largest = largest
        self._salt = salt

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`."""
        made = []
        for number in range(count):
            draw = random.Random(f"{self._salt}/{seed}/{number}")
            ids = tuple(draw.randrange(10, self._largest) for _ in range(self._tokens))
            made.append(Prompt(f"random/{number}", input_ids=ids))
        return tuple(made)


def measure(args: argparse.Namespace, concurrency: int, salt: int, warmup: int) -> Measurement:
    """One measurement of ours."""
    point = OperatingPoint(concurrency, requests=requests(args, concurrency))
    workload = Workload(
        prompts=(("random", 1.0),),
        output_tokens=args.output_tokens,
        points=(point,),
        warmup_requests=warmup,
    )
    source = RandomIds(args.prompt_tokens, args.vocabulary, salt)
    measured = bench(args.url, workload, point, prompts=source)
    for reason in (*measured.invalid, *measured.warnings):
        print(f"  ours: {reason}", file=sys.stderr)
    return measured


def ours(args: argparse.Namespace, concurrency: int, salt: int) -> dict[str, float | None]:
    """One measurement that starts as theirs does, and one as the tuner makes it."""
    window = measure(args, concurrency, 2 * salt, warmup=1)
    whole = measure(args, concurrency, 2 * salt + 1, warmup=0)
    return {
        "output_tok_s": whole_tok_s(whole),
        "ttft_p50_ms": statistics.median(s.ttft_s for s in whole.samples) * 1000.0,
        "tpot_p50_ms": statistics.median(
            (s.e2e_s - s.ttft_s) / (s.completion_tokens - 1) for s in whole.samples
        )
        * 1000.0,
        "accept_length": whole.accept_length,
        "window_tok_s": window.output_tok_s,
        "window_tpot_p50_ms": window.tpot_p50_ms,
        "client_cpu_share": window.client_cpu_share,
    }


def whole_tok_s(measured: Measurement) -> float:
    """All output tokens over the time from the first request to the last token."""
    tokens = sum(sample.completion_tokens for sample in measured.samples)
    first = min(sample.sent_s for sample in measured.samples)
    last = max(sample.sent_s + sample.e2e_s for sample in measured.samples)
    return tokens / (last - first)


def theirs(args: argparse.Namespace, concurrency: int, seed: int) -> dict[str, float | None]:
    """One run of `sglang.bench_serving`, unchanged."""
    host, _, port = args.url.removeprefix("http://").partition(":")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "bench.jsonl"
        command = [
            *(args.sglang_python, "-m", "sglang.bench_serving", "--backend", "sglang"),
            *("--host", host, "--port", port, "--output-file", str(output)),
            *("--model", args.tokenizer, "--tokenizer", args.tokenizer),
            *("--dataset-name", "random-ids", "--random-range-ratio", "1.0"),
            *("--random-input-len", str(args.prompt_tokens)),
            *("--random-output-len", str(args.output_tokens)),
            *("--num-prompts", str(requests(args, concurrency))),
            *("--max-concurrency", str(concurrency), "--warmup-requests", str(concurrency)),
            *("--seed", str(seed), "--flush-cache", "--disable-tqdm"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    return {
        "output_tok_s": found["output_throughput"],
        "ttft_p50_ms": found["median_ttft_ms"],
        "tpot_p50_ms": found["median_tpot_ms"],
        "accept_length": found.get("accept_length"),
    }


def requests(args: argparse.Namespace, concurrency: int) -> int:
    """Prompts of one run at a concurrency."""
    return int(max(16, args.waves * concurrency))


def median(rounds: list[dict[str, float | None]], name: str) -> float | None:
    """The median of a figure over rounds; `None` where it is missing."""
    values = [value for found in rounds if (value := found.get(name)) is not None]
    return statistics.median(values) if values else None


def main() -> None:
    """Runs both and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--tokenizer", required=True, help="path of the served model's tokenizer")
    parser.add_argument("--sglang-python", default=sys.executable)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waves", type=int, default=4, help="requests per unit of concurrency")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--output", type=Path, help="where all rounds go, as JSON")
    args = parser.parse_args()
    everything: dict[int, Any] = {}
    print(f"{'concurrency':>11} {'figure':<14}{'ours':>10}{'theirs':>10}{'ratio':>8}")
    for concurrency in args.concurrency:
        rounds = [
            (ours(args, concurrency, number), theirs(args, concurrency, 1000 + number))
            for number in range(args.rounds)
        ]
        mine, other = [pair[0] for pair in rounds], [pair[1] for pair in rounds]
        everything[concurrency] = {"ours": mine, "theirs": other}
        for name in FIGURES:
            a, b = median(mine, name), median(other, name)
            if a is not None and b is not None:
                print(f"{concurrency:>11} {name:<14}{a:>10.2f}{b:>10.2f}{a / b:>8.3f}", flush=True)
        window = median(mine, "window_tok_s")
        print(f"{concurrency:>11} {'window':<14}{window:>10.2f}", flush=True)
        if args.output:
            args.output.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
