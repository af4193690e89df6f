"""Measure how the speed of a client changes the number of prefills.

    python benchmarks/client_pace.py --url http://127.0.0.1:30000 --log SERVER.log
        [--delays-ms 0 1 3 10 30 100] [--concurrency 8] [--rounds 3]

One client sends the same load through a tap (`benchmarks/tap.py`) that delays each request. Only
this delay differs between runs. The server's log shows the number of prefills and their requests
("Prefill batch, #new-seq: N").

A prefill interrupts all decoding requests. The next request of a fast client is prefilled alone;
the next request of a slow client is prefilled together with those of other lanes. A slow client
therefore causes fewer prefills, more tokens per second and later first tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks.agreement import measure, texts, whole
from benchmarks.tap import Tap

_PREFILL = re.compile(rb"Prefill batch[^\n]*?#new-seq: (\d+)")


def prefills(log: Path, begin: int, requests: int) -> list[int]:
    """Return the number of requests in each prefill of the load, the newest in the log.

    Prefills between `begin` and the load belong to probes.
    """
    with log.open("rb") as file:
        file.seek(begin)
        sizes = [int(size) for size in _PREFILL.findall(file.read())]
    kept: list[int] = []
    while sizes and sum(kept) < requests:
        kept.insert(0, sizes.pop())
    return kept


def main() -> None:
    """Run the load at every delay, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[0, 1, 3, 10, 30, 100])
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-words", type=int, default=16)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--show", action="store_true", help="also print the sizes of all prefills")
    args = parser.parse_args()
    args.processes = None
    port, url = int(args.url.rpartition(":")[2]), args.url
    made = texts(args.requests, args.prompt_words, 1)
    seen: dict[float, list[tuple[float, float, int]]] = defaultdict(list)
    for _ in range(args.rounds):
        for delay in args.delays_ms:
            begin = args.log.stat().st_size
            with contextlib.ExitStack() as stack:
                args.url = stack.enter_context(Tap(port, delay_s=delay / 1000)).url
                figures = whole(measure(args, made, args.concurrency, warmup=0))
            args.url = url
            sizes = prefills(args.log, begin, args.requests)
            if args.show:
                print(f"{delay:g} ms:", *sizes)
            speed, ttft = figures["output_tok_s"], figures["ttft_p50_ms"]
            seen[delay].append((speed or 0.0, ttft or 0.0, len(sizes)))
    print(f"{'held back, ms':>13}{'tok/s':>10}{'TTFT p50, ms':>14}{'prefills':>10}  (their range)")
    for delay, runs in seen.items():
        speeds, ttfts, counts = zip(*runs, strict=True)
        print(
            f"{delay:>13g}{statistics.median(speeds):>10.2f}{statistics.median(ttfts):>14.1f}"
            f"{statistics.median(counts):>10g}  ({min(counts)} to {max(counts)})"
        )


if __name__ == "__main__":
    main()
