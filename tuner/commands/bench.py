"""`tuner bench`: one measurement of a server that somebody else started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from search_spaces.study_values import PROMPT_SETS
from search_spaces.workload import OperatingPoint, Workload
from tuner.errors import CommandError, Exit
from tuner.export import dump
from tuner.report import point_dict

if TYPE_CHECKING:
    from results.records import Measurement


def bench(
    url: str,
    *,
    concurrency: int,
    requests: int | None,
    output_tokens: int,
    prompts: str,
    seed: int,
    as_json: bool,
) -> Exit:
    """Measures one window and prints it; exit code 4 if the server fails meanwhile."""
    from runners.base import RunnerError  # noqa: PLC0415 - the transport is heavy
    from runners.load import NotEnoughPromptsError  # noqa: PLC0415
    from runners.load import bench as measure  # noqa: PLC0415

    point = OperatingPoint(concurrency, requests=requests)
    workload = Workload(parse_shares(prompts), output_tokens, (point,))
    try:
        measurement = measure(url.rstrip("/"), workload, point, seed=seed)
    except NotEnoughPromptsError as error:
        raise CommandError(str(error)) from error
    except RunnerError as error:
        if error.failure.kind == "bad_url":
            raise CommandError(error.failure.message) from error
        raise CommandError(f"{url}: {error.failure.message}", Exit.FAULT) from error
    if as_json:
        sys.stdout.write(dump({"url": url, **point_dict(measurement)}))
    else:
        _print(measurement)
    return Exit.DONE


def parse_shares(text: str) -> tuple[tuple[str, float], ...]:
    """`"chat=0.5,code=0.5"` as shares that sum to 1; a name alone weighs 1.

    Raises:
        CommandError: A set is unknown, or a share is no positive number.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            shares[name] = float(share or 1)
        except ValueError:
            shares[name] = 0.0
        if name not in PROMPT_SETS or not 0 < shares[name] < float("inf"):
            raise CommandError(
                f"--prompts {text!r}: write it like chat=0.5,code=0.5; "
                f"the sets are {', '.join(PROMPT_SETS)}"
            )
    total = sum(shares.values())
    return tuple(sorted((name, share / total) for name, share in shares.items()))


def _print(m: Measurement) -> None:
    mark = " (simulated)" if m.simulated else ""
    rows = [
        ("output tok/s", f"{m.output_tok_s:.1f}{mark}"),
        ("accept length", f"{m.accept_length:.3f}" if m.accept_length is not None else "-"),
        ("TTFT p50 / p95", f"{m.ttft_p50_ms:.1f} / {m.ttft_p95_ms:.1f} ms"),
        ("TPOT p50 / p95", f"{m.tpot_p50_ms:.2f} / {m.tpot_p95_ms:.2f} ms"),
        ("end to end p50 / p95", f"{m.e2e_p50_ms:.0f} / {m.e2e_p95_ms:.0f} ms"),
        ("window", f"{m.window_s:.1f} s, {m.requests} requests, {m.output_tokens} tokens"),
    ]
    for name, value in rows:
        sys.stdout.write(f"{name:<22}{value}\n")
    for reason in m.invalid:
        sys.stdout.write(f"do not believe it: {reason}\n")
