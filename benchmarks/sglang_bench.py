"""Run `sglang.bench_serving` unchanged, for comparison with our client.

`bench_serving` reads the prompts from a file in its `custom` format and shuffles them with its
seed. It divides all output tokens by the time from its first request to the end of a call of
`/server_info` (0.5.9 to 0.5.23).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class BenchServing:
    """Command of `bench_serving`.

    Attributes:
        python: Interpreter of an environment with SGLang.
        url: `http://host:port` of the server.
        tokenizer: Path of the served model's tokenizer.
        output_tokens: Tokens of each answer.
        model: Name of the model in requests; SGLang's `/generate` ignores it.
    """

    python: str
    url: str
    tokenizer: str
    output_tokens: int
    model: str = "model"

    def at(self, url: str) -> BenchServing:
        """Return the same command for another address."""
        return replace(self, url=url)

    def run(
        self, prompts: Sequence[str], concurrency: int, *, seed: int = 0, timeout_s: float = 600.0
    ) -> Said:
        """Run once over `prompts`, after a warm-up and a flush of the cache.

        Raises:
            RuntimeError: The run failed, or some of its requests did.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            data, output = folder / "prompts.jsonl", folder / "result.jsonl"
            turns = [
                [{"content": text}, {"content": "an answer of some words"}] for text in prompts
            ]
            data.write_text("\n".join(json.dumps({"conversations": turn}) for turn in turns))
            command = [
                *(self.python, "-m", "sglang.bench_serving", "--backend", "sglang"),
                *("--base-url", self.url, "--model", self.model, "--tokenizer", self.tokenizer),
                *("--dataset-name", "custom", "--dataset-path", str(data)),
                *("--sharegpt-output-len", str(self.output_tokens), "--seed", str(seed)),
                *("--num-prompts", str(len(prompts)), "--max-concurrency", str(concurrency)),
                *("--warmup-requests", str(concurrency), "--flush-cache", "--disable-tqdm"),
                *("--output-details", "--output-file", str(output)),
            ]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
                check=False,
            )
            if done.returncode != 0:
                output_end = (done.stdout + done.stderr)[-2000:]
                raise RuntimeError(
                    f"{' '.join(command)} ended with {done.returncode}: {output_end}"
                )
            found: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
        if found["completed"] != len(prompts):
            raise RuntimeError(f"{found['completed']} of {len(prompts)} requests succeeded")
        return Said(
            output_tok_s=found["output_throughput"],
            ttft_p50_ms=found["median_ttft_ms"],
            tpot_p50_ms=found["median_tpot_ms"],
            accept_length=found.get("accept_length"),
            output_tokens=found["total_output_tokens"],
            prompt_tokens=tuple(found["input_lens"]),
            duration_s=found["duration"],
        )


@dataclass(frozen=True, slots=True)
class Said:
    """Figures that `bench_serving` reports.

    Attributes:
        output_tok_s: All output tokens divided by `duration_s`.
        ttft_p50_ms: Time from before connecting (each request has a separate connection) to the
            first chunk with text; a chunk with an incomplete character has no text.
        tpot_p50_ms: (end to end - TTFT) / (tokens - 1).
        accept_length: The server's average since the flush, over whole log intervals; `None`
            without speculation.
        output_tokens: Tokens of all answers.
        prompt_tokens: Tokens of each prompt by its tokenizer, in the order of sending.
        duration_s: Seconds from the first request to the end of the final `/server_info` call.
    """

    output_tok_s: float
    ttft_p50_ms: float
    tpot_p50_ms: float
    accept_length: float | None
    output_tokens: int
    prompt_tokens: tuple[int, ...]
    duration_s: float


def order_of_sending(prompts: Sequence[str], seed: int = 0) -> list[str]:
    """Return the prompts of a file in the order in which `bench_serving` sends them."""
    ordered = list(prompts)
    # It seeds Python's own generator and shuffles before it draws anything else.
    random.Random(seed).shuffle(ordered)
    return ordered
