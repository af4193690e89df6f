"""The files of `benchmarks.noise`: one row per block, and one per request of it.

    NAME.csv            blocks of quiet launches, as `benchmarks/data/README.md` has it
    NAME-requests.csv   their requests, and those of the next
    NAME-aside.csv      what must not be taken for quiet: blocks that were disturbed on purpose,
                        or not believed, the long one of the drift, and launches that failed

Rows are appended block by block, so a run that is killed loses the block it was in: a row without
its end is not read, and goes when the next one is written.
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
    """One window, as it was written.

    Attributes:
        configuration: What ran.
        concurrency: The operating point.
        launch: In which launch.
        block: Number within the launch, over all points.
        condition: What ran beside it.
        started_at: Seconds since the epoch.
        output_tok_s: Of the window.
        cycle_ms: Per verify, per token without speculation.
        accept_length: `None` without speculation.
        ttft_p50_ms: Median time to first token.
        client_cpu_share: CPU of the busiest client process, per second.
        fingerprint: Of the load.
        failure: Why it is not believed; empty for a good one.
        quiet_launch: Whether it is from a launch in which nothing was disturbed.
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
    """One request of a block, as it was written."""

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
        """Logarithm of the output tokens per second that the user saw, prefill included."""
        return math.log(self.completion_tokens / self.e2e_s)

    @property
    def log_cycle_ms(self) -> float:
        """Logarithm of the milliseconds per verify, per token without speculation."""
        cycles = self.verify_calls or self.completion_tokens - 1
        return math.log(1000 * (self.e2e_s - self.ttft_s) / cycles)


class Files:
    """The three files of a name.

    Args:
        name: Their path, without the ending.
    """

    def __init__(self, name: Path) -> None:
        self.blocks = name.with_name(f"{name.name}.csv")
        self.aside = name.with_name(f"{name.name}-aside.csv")
        self.requests = name.with_name(f"{name.name}-requests.csv")
        self._repeats: Counter[tuple[str, str]] | None = None

    def exist(self) -> bool:
        """Whether something is written already."""
        return any(path.exists() for path in (self.blocks, self.aside, self.requests))

    def append_block(
        self,
        measurement: Measurement,
        about: Mapping[str, Any],
        *,
        quiet_launch: bool,
    ) -> None:
        """Writes a block and its requests.

        Args:
            measurement: The window.
            about: What the columns beside it hold.
            quiet_launch: Whether nothing was disturbed in its launch.
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
        """Writes a launch that failed."""
        row = {**about, "failure": failure, "state": "failed", "launch_s": launch_s, "repeat": 0}
        append(self.aside, BLOCK_COLUMNS, [row])

    def read_blocks(self) -> list[Block]:
        """All blocks, in the order in which they were measured.

        Raises:
            DamagedFileError: A file is not one of these.
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
        """All requests.

        Raises:
            DamagedFileError: The file is not one of these.
        """
        return list(each(self.requests, REQUEST_COLUMNS, _request))

    def facts(self) -> dict[str, str]:
        """What is the same in every row: study, machine, version of SGLang, provenance."""
        for path in (self.blocks, self.aside):
            for row in read(path, BLOCK_COLUMNS):
                return {key: row[key] for key in ("study", "machine", "sglang", "provenance")}
        return {}

    def repeats(self, configuration: str, concurrency: int | None) -> int:
        """Blocks of a configuration's key at a point that are in the file of quiet ones."""
        if self._repeats is None:
            rows = read(self.blocks, BLOCK_COLUMNS)
            self._repeats = Counter((r["configuration"], r["concurrency"]) for r in rows)
        return self._repeats[configuration, str(concurrency)]

    def next_launch(self) -> int:
        """The number of the next launch: those that failed have theirs.

        Raises:
            DamagedFileError: A file is not one of these.
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
    """The columns that are the same in all rows of a launch."""
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
    """A block; `None` of a row that only tells of a launch that failed."""
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
