"""CPU that a client spends per streamed chunk: ours against two plain ways to do it.

    python benchmarks/load_client.py [--tokens 256] [--concurrency 8] [--requests 32] [--rounds 5]

One server process serves all clients with the same cumulative `/generate` streams, one packet per
chunk. The clients take turns within each round, so that a busy machine slows all of them alike;
what is compared is CPU time of this process (`time.process_time`), not wall time, and the ratio is
the median of the rounds' ratios. The time to import each client, a cost per process, is listed too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx
import orjson

from runners.load.client import Flight, ServerClient

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BODY = orjson.dumps({"text": "Hello", "stream": True})
Client = Callable[[str, int, int], Awaitable[int]]
"""Takes the server's address, requests and concurrency; returns the tokens that it counted."""


def events(tokens: int) -> list[bytes]:
    """A stream as SGLang 0.5.23 sends it, two tokens a chunk, four bytes of text a token."""
    chunks = []
    for count in [1, *range(3, tokens, 2), tokens]:
        last = count == tokens
        event = {
            "text": 'tok "' * (count * 4 // 5),
            "output_ids": [1000 + n % 30000 for n in range(count)],
            "meta_info": {
                "id": "54668d8026e146c89e030981f783b010",
                "finish_reason": {"type": "length", "length": tokens} if last else None,
                "prompt_tokens": 7,
                "weight_version": "default",
                "num_retractions": 0,
                "forward_entry_time": 1795978601.7862265,
                "prefill_finished_time": 1795978601.8043509,
                "queue_time": 0.0004014700000425364,
                "reasoning_tokens": 0,
                "completion_tokens": count,
                "cached_tokens": 0,
                "cached_tokens_details": None,
                "dp_rank": None,
            },
        }
        chunks.append(b"data: " + orjson.dumps(event) + b"\n\n")
    return [*chunks, b"data: [DONE]\n\n"]


def serve(tokens: int, pace_s: float, out: Connection) -> None:
    """The server process; sends its port."""
    packets = [b"%x\r\n%s\r\n" % (len(event), event) for event in events(tokens)]

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for packet in packets:
                    writer.write(packet)
                    await asyncio.sleep(pace_s)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        out.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def closed_loop(one: Callable[[], Awaitable[int]], requests: int, concurrency: int) -> int:
    """Runs `one` so often, so many at a time; returns the sum of its results."""
    waiting = iter(range(requests))
    total = 0

    async def work() -> None:
        nonlocal total
        for _ in waiting:
            counted = await one()  # `total += await ...` would read `total` too early
            total += counted

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return total


async def ours(url: str, requests: int, concurrency: int) -> int:
    """The load generator's own client."""
    async with ServerClient(url, connections=concurrency, request_timeout_s=600) as client:

        async def one() -> int:
            flight = Flight("a", BODY)
            await client.generate(flight)
            if flight.error:
                raise RuntimeError(flight.error)
            return flight.tokens

        return await closed_loop(one, requests, concurrency)


async def plain_httpx(url: str, requests: int, concurrency: int) -> int:
    """`httpx` with its own transport, `json.loads` of every chunk."""
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as client:

        async def one() -> int:
            tokens = 0
            async with client.stream("POST", url + "/generate", content=BODY) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        tokens = json.loads(line[6:])["meta_info"]["completion_tokens"]
            return tokens

        return await closed_loop(one, requests, concurrency)


async def plain_aiohttp(url: str, requests: int, concurrency: int) -> int:
    """`aiohttp`, reading by lines, `json.loads` of every chunk: the field's usual client."""
    # The reader's buffer must hold a whole line.
    async with aiohttp.ClientSession(read_bufsize=2**22) as session:

        async def one() -> int:
            tokens = 0
            async with session.post(url + "/generate", data=BODY) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        tokens = json.loads(line[6:])["meta_info"]["completion_tokens"]
            return tokens

        return await closed_loop(one, requests, concurrency)


@dataclass(frozen=True, slots=True)
class Row:
    """One client, and the module whose import it costs."""

    name: str
    client: Client
    imports: str


ROWS = (
    Row("ours (httpx-aiohttp, count by search)", ours, "runners.load.generator"),
    Row("httpx, json.loads per chunk", plain_httpx, "httpx"),
    Row("aiohttp, json.loads per chunk", plain_aiohttp, "aiohttp"),
)


def import_ms(module: str) -> float:
    """CPU milliseconds to import `module` in a fresh process, the interpreter's own taken off."""
    code = (
        "import time; a = time.process_time(); "
        f"import {module}; print((time.process_time() - a) * 1000)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return min(float(run.stdout) for run in runs)


def cpu_us_per_chunk(client: Client, url: str, args: argparse.Namespace) -> float:
    began = time.process_time()
    tokens = asyncio.run(client(url, args.requests, args.concurrency))
    spent = time.process_time() - began
    if tokens != args.requests * args.tokens:
        raise RuntimeError(f"counted {tokens} tokens, {args.requests * args.tokens} were sent")
    return spent / (args.requests * (args.tokens // 2 + 1)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tokens", type=int, default=256, help="output tokens of an answer")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pace-ms", type=float, default=3.0, help="between chunks of one stream")
    args = parser.parse_args()

    ours_end, theirs_end = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(args.tokens, args.pace_ms / 1000, theirs_end), daemon=True
    )
    server.start()
    try:
        url = f"http://127.0.0.1:{ours_end.recv()}"
        for row in ROWS:
            asyncio.run(row.client(url, 2, 2))  # imports and first connections are not counted
        rounds = [
            [cpu_us_per_chunk(row.client, url, args) for row in ROWS] for _ in range(args.rounds)
        ]
    finally:
        server.terminate()
        server.join()

    sizes = [len(event) for event in events(args.tokens)]
    print(
        f"{args.tokens} tokens an answer, concurrency {args.concurrency}, {args.requests} requests "
        f"a round, {args.rounds} rounds; chunks of {statistics.mean(sizes):.0f} bytes on average"
    )
    print(f"{'client':<40}{'us/chunk':>10}{'min..max':>16}{'ratio':>8}{'import ms':>11}")
    for n, row in enumerate(ROWS):
        values = [cells[n] for cells in rounds]
        ratio = statistics.median(cells[n] / cells[0] for cells in rounds)
        spread = f"{min(values):.1f}..{max(values):.1f}"
        print(
            f"{row.name:<40}{statistics.median(values):>10.1f}{spread:>16}{ratio:>8.2f}"
            f"{import_ms(row.imports):>11.0f}"
        )


if __name__ == "__main__":
    main()
