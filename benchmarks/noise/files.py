"""Files of `benchmarks.noise`: one row per block, and one per request.

    NAME.csv            blocks of quiet launches, as in `benchmarks/data/README.md`
    NAME-requests.csv   requests of the blocks in both other files
    NAME-aside.csv      blocks that do not count as quiet: disturbed or invalid blocks, blocks of
                        the drift, and failed launches

Rows are appended block by block, so a killed run loses only its current block. An incomplete last
row is not read, and is removed with the next write.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import table
from benchmarks.noise.rows import DamagedFileError, append, each, read
from search_spaces.configuration import Configuration, Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from results.records import Machine, Measurement

QUIET = "quiet"
"""The condition of a block beside which nothing ran."""
DRIFT = "drift"
"""The condition of the blocks of a long launch."""

OWN = ("condition", "block", "started_at", "client_cpu_share")
BLOCK_COLUMNS = (*table.COLUMNS, *OWN)
REQUEST_COLUMNS = (
    *("configuration", "concurrency", "launch", "block", "condition", "prompt", "sent_s"),
    *("ttft_s", "e2e_s", "prompt_tokens", "completion_tokens", "verify_calls", "correct_drafts"),
)


@dataclass(frozen=True, slots=True)
class Block:
    """One window, as written.

    Attributes:
        configuration: Configuration of the launch.
        concurrency: Operating point.
        launch: Number of the launch.
        block: Number within the launch, over all points.
        condition: Disturbance during the block.
        started_at: Seconds since the epoch.
        output_tok_s: Figure of the window.
        cycle_ms: Time per verify (per token without speculation).
        accept_length: `None` without speculation.
        ttft_p50_ms: Median time to first token.
        client_cpu_share: CPU seconds of the busiest client process per second.
        fingerprint: Fingerprint of the load.
        failure: Reason of an invalid window; empty for a valid one.
        quiet_launch: Whether no block of the launch was disturbed.
    """

    configuration: Configuration
    concurrency: int
    launch: int
    block: int
    condition: str
    started_at: float
    output_tok_s: float
    cycle_ms: float
    accept_length: float | None
    ttft_p50_ms: float
    client_cpu_share: float
    fingerprint: str
    failure: str
    quiet_launch: bool


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a block, as written."""

    configuration: str
    concurrency: int
    launch: int
    block: int
    prompt: str
    ttft_s: float
    e2e_s: float
    completion_tokens: int
    verify_calls: int

    @property
    def log_tok_s(self) -> float:
        """Logarithm of output tokens per second as the user sees them, including prefill."""
        return math.log(self.completion_tokens / self.e2e_s)

    @property
    def log_cycle_ms(self) -> float:
        """Logarithm of milliseconds per verify (per token without speculation)."""
        cycles = self.verify_calls or self.completion_tokens - 1
        return math.log(1000 * (self.e2e_s - self.ttft_s) / cycles)


class Files:
    """The three files of one name.

    Args:
        name: Path of the files without the ending.
    """

    def __init__(self, name: Path) -> None:
        self.blocks = name.with_name(f"{name.name}.csv")
        self.aside = name.with_name(f"{name.name}-aside.csv")
        self.requests = name.with_name(f"{name.name}-requests.csv")
        self._repeats: Counter[tuple[str, str]] | None = None

    def exist(self) -> bool:
        """Whether any of the files exists."""
        return any(path.exists() for path in (self.blocks, self.aside, self.requests))

    def append_block(
        self,
        measurement: Measurement,
        about: Mapping[str, Any],
        *,
        quiet_launch: bool,
    ) -> None:
        """Write a block and its requests.

        Args:
            measurement: The window.
            about: Values of further columns.
            quiet_launch: Whether no block of its launch was disturbed.
        """
        row = {
            **about,
            **table.of_measurement(measurement),
            "state": "invalid" if measurement.invalid else "complete",
            "started_at": f"{measurement.started_at:.3f}",
            "client_cpu_share": measurement.client_cpu_share,
        }
        # Requests first: a block without its requests is worse than requests without their block.
        keys = ("configuration", "launch", "block", "condition")
        shared = {key: about[key] for key in keys} | {"concurrency": row["concurrency"]}
        append(
            self.requests,
            REQUEST_COLUMNS,
            (
                shared | {name: getattr(s, name) for name in REQUEST_COLUMNS if hasattr(s, name)}
                for s in measurement.samples
                if s.error is None
            ),
        )
        believed = quiet_launch and not measurement.invalid
        append(self.blocks if believed else self.aside, BLOCK_COLUMNS, [row])
        if believed and self._repeats is not None:
            self._repeats[about["configuration"], str(row["concurrency"])] += 1

    def append_failure(self, about: Mapping[str, Any], failure: str, launch_s: float) -> None:
        """Write a failed launch."""
        row = {**about, "failure": failure, "state": "failed", "launch_s": launch_s, "repeat": 0}
        append(self.aside, BLOCK_COLUMNS, [row])

    def read_blocks(self) -> list[Block]:
        """Read all blocks in the order of measurement.

        Raises:
            DamagedFileError: A file has another format.
        """
        found = [
            block
            for path in (self.blocks, self.aside)
            for block in each(
                path, BLOCK_COLUMNS, partial(_block, quiet_launch=path == self.blocks)
            )
            if block is not None
        ]
        return sorted(found, key=lambda block: block.started_at)

    def read_requests(self) -> list[Request]:
        """Read all requests.

        Raises:
            DamagedFileError: The file has another format.
        """
        return list(each(self.requests, REQUEST_COLUMNS, _request))

    def facts(self) -> dict[str, str]:
        """Return the values that all rows share: study, machine, SGLang version and provenance."""
        for path in (self.blocks, self.aside):
            for row in read(path, BLOCK_COLUMNS):
                return {key: row[key] for key in ("study", "machine", "sglang", "provenance")}
        return {}

    def repeats(self, configuration: str, concurrency: int | None) -> int:
        """Return the number of quiet blocks of a configuration at a point."""
        if self._repeats is None:
            rows = read(self.blocks, BLOCK_COLUMNS)
            self._repeats = Counter((r["configuration"], r["concurrency"]) for r in rows)
        return self._repeats[configuration, str(concurrency)]

    def next_launch(self) -> int:
        """Return the number of the next launch; failed launches count.

        Raises:
            DamagedFileError: A file has another format.
        """
        rows = (
            *(r for path in (self.blocks, self.aside) for r in read(path, BLOCK_COLUMNS)),
            *read(self.requests, REQUEST_COLUMNS),
        )
        try:
            return max((int(row["launch"]) for row in rows), default=-1) + 1
        except ValueError as error:
            raise DamagedFileError(f"{self.blocks}: no number of a launch: {error}") from error


def about_launch(
    configuration: Configuration, study: str, machine: Machine, *, simulated: bool
) -> dict[str, Any]:
    """Return the columns that are equal in all rows of a launch."""
    provenance = "simulated" if simulated else "measured"
    return (
        table.of_configuration(configuration)
        | table.of_machine(machine)
        | {"study": study, "provenance": provenance}
    )


def _request(row: Mapping[str, str]) -> Request:
    return Request(
        row["configuration"],
        int(row["concurrency"]),
        int(row["launch"]),
        int(row["block"]),
        row["prompt"],
        float(row["ttft_s"]),
        float(row["e2e_s"]),
        int(row["completion_tokens"]),
        int(row["verify_calls"]),
    )


def _block(row: Mapping[str, str], *, quiet_launch: bool) -> Block | None:
    """Parse a block; `None` for the row of a failed launch."""
    if not row["concurrency"]:
        return None
    numbers = (row[name] for name in ("num_steps", "topk", "num_draft_tokens"))
    speculation = Speculation(row["algorithm"], *(int(n) if n else None for n in numbers))
    return Block(
        configuration=Configuration.of(
            speculation,
            draft_tp=int(row["draft_tp"]) if row["draft_tp"] else None,
            flags=json.loads(row["flags"]),
            env=json.loads(row["env"]),
        ),
        concurrency=int(row["concurrency"]),
        launch=int(row["launch"]),
        block=int(row["block"]),
        condition=row["condition"],
        started_at=float(row["started_at"]),
        output_tok_s=float(row["output_tok_s"]),
        cycle_ms=float(row["cycle_ms"] or "nan"),
        accept_length=float(row["accept_length"]) if row["accept_length"] else None,
        ttft_p50_ms=float(row["ttft_p50_ms"] or "nan"),
        client_cpu_share=float(row["client_cpu_share"] or "nan"),
        fingerprint=row["fingerprint"],
        failure=row["failure"],
        quiet_launch=quiet_launch,
    )
