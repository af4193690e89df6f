"""Compare our figures with those of `sglang.bench_serving` on a running SGLang server.

    python benchmarks/agreement.py --url http://127.0.0.1:30000 --tokenizer MODEL
        [--sglang-python PYTHON] [--concurrency 1 8 32] [--rounds 6] [--table FILE.csv --name NAME]

Both clients send the same prompts in the same order, request answers of the same fixed length, and
take turns: our client is first in one round, theirs in the next. `bench_serving` sends its first
requests at once, so our client does the same (`burst`), and the figures cover the whole run: all
output tokens, from the first request to the last token. The row "window" has the tuner's usual
window with a ramp.

Two runs differ, because server and machine differ in each. `--same-run` compares definitions on one
run: `bench_serving` sends through a tap (`benchmarks/tap.py`), and our definitions are applied to
its streams. This mode needs no quiet machine.

Differences by definition are shown too. `bench_serving` stops its clock after the server has
answered `/server_info`; "without info" is its speed without this call. Its TTFT includes
connecting, and ends with the first chunk that has text; "from text" is our TTFT with that end,
which only a tap can see.

On a machine with few cores the client takes CPU time from the server. Separate them: start the
server under `taskset -c 0` and this script under `taskset -c 1`.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.sglang_bench import BenchServing, order_of_sending
from benchmarks.tap import Tap
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.running_server import bench
from runners.server_info import read_server, read_server_info
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.sglang_bench import Said
    from results.records import Measurement, RequestSample

FIGURES = (
    *("output_tok_s", "output_tok_s_without_info"),
    *("ttft_p50_ms", "ttft_from_text_p50_ms", "tpot_p50_ms", "accept_length"),
)
COLUMNS = ("study", "sglang", "concurrency", "round", "figure", "ours", "theirs", "ratio")
INFO_CALLS = 5

Figures = dict[str, float | None]
Round = tuple[Figures, Figures]
"""Ours and theirs."""


class Texts(PromptSource):
    """Prompt source with the given prompts in their order."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._prompts = tuple(Prompt(f"text/{n}", text) for n, text in enumerate(texts))

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`; the seed is ignored."""
        del seed
        return self._prompts[:count]


def texts(count: int, words: int, salt: int) -> list[str]:
    """Return prompts without a common beginning, of `words` numbers and up to a quarter more."""
    draw = random.Random(salt)
    lengths = [words + draw.randrange(words // 4 + 1) for _ in range(count)]
    return [" ".join(f"w{draw.randrange(1000, 100_000)}" for _ in range(n)) for n in lengths]


def measure(
    args: argparse.Namespace, prompts: Sequence[str], concurrency: int, warmup: int
) -> Measurement:
    """Measure once with our client; prompts of the warm-up follow the window's."""
    count = len(prompts) - warmup
    point = OperatingPoint(concurrency, requests=count)
    workload = Workload((("texts", 1.0),), args.output_tokens, (point,), warmup_requests=warmup)
    measured = bench(
        args.url,
        workload,
        point,
        prompts=Texts(prompts),
        processes=args.processes,
        burst=not warmup,
    )
    for reason in (*measured.invalid, *measured.warnings):
        print(f"  ours: {reason}", file=sys.stderr)
    return measured


def whole(measured: Measurement) -> Figures:
    """Return the figures over all requests of a load, as `bench_serving` defines them."""
    figures = whole_of(measured.samples)
    return {
        **figures,
        "accept_length": measured.accept_length,
        "client_cpu_share": measured.client_cpu_share,
    }


def whole_of(samples: Sequence[RequestSample]) -> Figures:
    """Return the figures over any requests, as `bench_serving` defines them."""
    first = min(sample.sent_s for sample in samples)
    last = max(sample.sent_s + sample.e2e_s for sample in samples)
    speed = sum(sample.completion_tokens for sample in samples) / (last - first)
    paces = [(s.e2e_s - s.ttft_s) / (s.completion_tokens - 1) for s in samples]
    return {
        "output_tok_s": speed,
        "output_tok_s_without_info": speed,
        "ttft_p50_ms": 1000 * statistics.median(sample.ttft_s for sample in samples),
        "tpot_p50_ms": 1000 * statistics.median(paces),
        "prompt_tokens": sum(sample.prompt_tokens for sample in samples),
        "output_tokens": sum(sample.completion_tokens for sample in samples),
    }


def info_s(url: str) -> float:
    """Return the median time of `/server_info` on the idle server, in seconds."""
    taken = []
    for _ in range(INFO_CALLS):
        begun = time.perf_counter()
        read_server_info(url)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def figures_of(said: Said, info: float) -> Figures:
    """Return the figures of `bench_serving`; `info` is the time of its `/server_info` call."""
    return {
        "output_tok_s": said.output_tok_s,
        "output_tok_s_without_info": said.output_tokens / (said.duration_s - info),
        "ttft_p50_ms": said.ttft_p50_ms,
        "ttft_from_text_p50_ms": said.ttft_p50_ms,
        "tpot_p50_ms": said.tpot_p50_ms,
        "accept_length": said.accept_length,
        "prompt_tokens": sum(said.prompt_tokens),
        "output_tokens": said.output_tokens,
    }


def same_run(client: BenchServing, made: Sequence[str], concurrency: int) -> Round:
    """Run `bench_serving` through a tap; return our figures of its streams, and its own."""
    with Tap(int(client.url.rpartition(":")[2])) as tap:
        said = client.at(tap.url).run(made, concurrency)
    if sorted(sample.prompt for sample in tap.samples()) != sorted(made):
        sys.exit("bench_serving did not send the given prompts")
    from_text = statistics.median(flight.first_text - flight.sent for flight in tap.flights)
    mine = whole_of(tap.samples()) | {
        "ttft_from_text_p50_ms": 1000 * from_text,
        "accept_length": tap.accept_length(),
    }
    return mine, figures_of(said, tap.info_s)


def one_round(args: argparse.Namespace, concurrency: int, number: int) -> Round:
    """Measure the same new prompts with both clients; the order alternates between rounds."""
    count = max(16, args.waves * concurrency)
    made = texts(count, args.prompt_words, hash((args.seed, concurrency, number)))
    client = BenchServing(args.sglang_python, args.url, args.tokenizer, args.output_tokens)
    if args.same_run:
        return same_run(client, made, concurrency)
    mine: Figures = {}
    other: Figures = {}

    def ours() -> None:
        mine.update(whole(measure(args, order_of_sending(made), concurrency, warmup=0)))

    def theirs() -> None:
        other.update(figures_of(client.run(made, concurrency), info_s(args.url)))

    for act in (ours, theirs) if number % 2 == 0 else (theirs, ours):
        act()
    for name in ("prompt_tokens", "output_tokens"):
        if mine[name] != other[name]:
            sys.exit(f"the loads differ: {name} is {mine[name]} (ours) and {other[name]}")
    if args.window:
        more = texts(concurrency, args.prompt_words, hash((args.seed, concurrency, number, 1)))
        window = measure(args, [*order_of_sending(made), *more], concurrency, len(more))
        mine |= {"window_tok_s": window.output_tok_s, "window_tpot_p50_ms": window.tpot_p50_ms}
    return mine, other


def pairs(rounds: Sequence[Round], name: str) -> list[tuple[float, float]]:
    """Return the figure of both clients for each round that has both."""
    return [
        (ours, theirs)
        for mine, other in rounds
        if (ours := mine.get(name)) is not None and (theirs := other.get(name)) is not None
    ]


def show(concurrency: int, rounds: Sequence[Round]) -> None:
    """Print one line per figure: medians, and median and range of the ratio within a round."""
    for name in FIGURES:
        both = pairs(rounds, name)
        if not both:
            continue
        ratios = [a / b for a, b in both]
        ours, theirs = (statistics.median(side) for side in zip(*both, strict=True))
        print(
            f"{concurrency:>11} {name:<26}{ours:>10.3f}{theirs:>10.3f}"
            f"{statistics.median(ratios):>8.4f}  {min(ratios):.4f} to {max(ratios):.4f}"
        )
    for name in ("window_tok_s", "client_cpu_share"):
        seen = [value for mine, _ in rounds if (value := mine.get(name)) is not None]
        if seen:
            print(f"{concurrency:>11} {name:<26}{statistics.median(seen):>10.3f}")
    sys.stdout.flush()


def rows(
    name: str, version: str, concurrency: int, rounds: Sequence[Round]
) -> list[dict[str, Any]]:
    """Return the rows of the table for one concurrency."""
    return [
        {
            **dict(zip(COLUMNS, (name, version, concurrency, number, figure), strict=False)),
            "ours": f"{ours:.6g}",
            "theirs": f"{theirs:.6g}",
            "ratio": f"{ours / theirs:.5f}",
        }
        for number, one in enumerate(rounds)
        for figure in FIGURES
        for ours, theirs in pairs([one], figure)
    ]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--tokenizer", required=True, help="path of the served model's tokenizer")
    parser.add_argument("--sglang-python", default=sys.executable)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--waves", type=int, default=4, help="requests per unit of concurrency")
    parser.add_argument("--prompt-words", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--processes", type=int, help="our client processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--same-run", action="store_true", help="run only theirs, through a tap")
    parser.add_argument("--no-window", dest="window", action="store_false")
    parser.add_argument("--table", type=Path, help="append the rounds to this CSV file")
    parser.add_argument("--name", default="", help="name of this server in the table")
    return parser.parse_args()


def main() -> None:
    """Run both clients and print the ratios."""
    args = arguments()
    facts = read_server(args.url)
    print(f"SGLang {facts.version}, {facts.speculation}", file=sys.stderr)
    print(f"{'concurrency':>11} {'figure':<26}{'ours':>10}{'theirs':>10}{'ratio':>8}  its range")
    for concurrency in args.concurrency:
        rounds = [one_round(args, concurrency, number) for number in range(args.rounds)]
        show(concurrency, rounds)
        if args.table:
            is_new = not args.table.exists()
            with args.table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if is_new:
                    writer.writeheader()
                writer.writerows(rows(args.name, facts.version, concurrency, rounds))


if __name__ == "__main__":
    main()
