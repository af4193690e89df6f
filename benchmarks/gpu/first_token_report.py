"""Say what explains the times of first tokens: `first_token_report.py OUTPUT` of `first_token.py`.

The report has, for each server: windows by condition; the stages of a first token in slow and in
fast requests; and the share of the variance that each observation explains (squared correlation;
for names, the share between groups).
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Row = dict[str, str]

SLOW = 1.25
"""A first token is slow if it took this many times the upper limit of the fast quarter."""

STAGES = (
    *("ttft_s", "inbound_s", "queue_s", "probes_s", "launch_s", "next_s", "wait_s"),
    *("process_s", "outbound_s"),
)
OBSERVED = (
    *("launch_cpu_s", "kernel_mode_s", "layer_median_s", "layer_longest_s", "gpu_s"),
    *("spin_s", "spin_after_s", "copy_s", "kernels_s", "next_launch_s", "collector_s"),
    *("collections", "faults", "switches", "preemptions", "device_mallocs", "reserved_bytes"),
    *("number", "rest_s"),
)
OF_WINDOW = (
    *("run_s", "run_delay_s", "threads_s", "steal_s", "interrupts", "context_switches"),
    *("sm_mhz", "memory_mhz", "power_w", "pstate", "temperature"),
)
NAMES = ("core", "condition", "window")
CALM = ("base", "flush", "think17", "no_probes", "no_collector", "frozen")
"""Conditions in which nothing is placed or loaded: what happens by itself."""


def report(folder: Path) -> str:
    """Return the report on the files in `folder`."""
    requests, windows = _read(folder / "requests.csv"), _read(folder / "windows.csv")
    by_window = {row["window"]: row for row in windows}
    for row in requests:
        row.update({name: by_window[row["window"]].get(name, "") for name in OF_WINDOW})
    parts = []
    for server in dict.fromkeys(row["server"] for row in requests):
        rows = [row for row in requests if row["server"] == server]
        parts.append(_of_server(server, rows))
    return "\n\n".join(parts) + "\n"


def _of_server(server: str, rows: list[Row]) -> str:
    calm = [row for row in rows if row["condition"] in CALM]
    times = sorted(float(row["ttft_s"]) for row in calm or rows)
    fast = times[len(times) // 4]
    limit = SLOW * fast
    lines = [
        f"== {server}: {len(rows)} first tokens",
        f"fast quarter below {1000 * fast:.1f} ms, slow above {1000 * limit:.1f} ms",
        "TTFT in ms, percentiles 5 25 50 75 90 95 99 (calm conditions): "
        + " ".join(f"{1000 * _percentile(times, p):.1f}" for p in (5, 25, 50, 75, 90, 95, 99)),
        "",
        _conditions(rows, limit),
        "",
        "calm windows in their order, median TTFT in ms @ core: " + _in_order(calm),
        "",
        _slow_and_fast(calm, limit),
        "",
        "share of TTFT's variance explained, calm conditions, requests / window means:",
        _explained(calm),
        "",
        "the same, all conditions:",
        _explained(rows),
    ]
    return "\n".join(lines)


def _conditions(rows: list[Row], limit: float) -> str:
    groups = _grouped(rows, "condition")
    shown = (
        "ttft_s",
        "launch_s",
        "launch_cpu_s",
        "spin_s",
        "copy_s",
        "kernels_s",
        "gpu_s",
        "rest_s",
    )
    head = f"{'condition':14} windows requests slow% " + " ".join(f"{n:>12}" for n in shown)
    lines = [head + "   (medians, ms)"]
    for condition, found in sorted(groups.items()):
        slow = sum(float(row["ttft_s"]) > limit for row in found) / len(found)
        windows = len({row["window"] for row in found})
        lines.append(
            f"{condition:14} {windows:7} {len(found):8} {100 * slow:5.0f} "
            + " ".join(f"{_milliseconds(found, name):>12}" for name in shown)
        )
    return "\n".join(lines)


def _in_order(rows: list[Row]) -> str:
    words = []
    for found in _grouped(rows, "window").values():
        cores = [row["core"] for row in found]
        core = max(set(cores), key=cores.count)
        words.append(f"{_milliseconds(found, 'ttft_s')}@{core}")
    return " ".join(words)


def _slow_and_fast(rows: list[Row], limit: float) -> str:
    fast = [row for row in rows if float(row["ttft_s"]) <= limit]
    slow = [row for row in rows if float(row["ttft_s"]) > limit]
    lines = [f"{'means':16} {'fast':>10} {'slow':>10} {'ratio':>7}   ({len(fast)}, {len(slow)})"]
    for name in (*STAGES, *OBSERVED, *OF_WINDOW):
        scale = 1000 if name.endswith("_s") and name not in OF_WINDOW else 1
        means = [_mean(group, name) for group in (fast, slow)]
        if None in means:
            continue
        first, second = (scale * mean for mean in means if mean is not None)
        ratio = f"{second / first:7.2f}" if first else ""
        unit = "ms" if scale == 1000 else ""
        lines.append(f"{name:16} {first:10.4g} {second:10.4g} {ratio} {unit}")
    return "\n".join(lines)


def _explained(rows: list[Row]) -> str:
    found: list[tuple[float, str, float | None]] = []
    means = {
        window: {name: _mean(group, name) for name in (*STAGES, *OBSERVED, *OF_WINDOW)}
        for window, group in _grouped(rows, "window").items()
    }
    for name in (*STAGES[1:], *OBSERVED, *OF_WINDOW):
        single = _squared_correlation([(_number(r, name), _number(r, "ttft_s")) for r in rows])
        whole = _squared_correlation([(m.get(name), m["ttft_s"]) for m in means.values()])
        if single is not None:
            found.append((single, name, whole))
    found += [(_between(rows, name), name, None) for name in NAMES]
    lines = [
        f"  {name:16} {single:5.2f}" + ("" if whole is None else f" / {whole:4.2f}")
        for single, name, whole in sorted(found, reverse=True, key=lambda one: one[0])
        if single >= 0.02
    ]
    return "\n".join(lines) or "  nothing"


def _between(rows: list[Row], name: str) -> float:
    """Return the share of TTFT's variance that is between the groups of one name, adjusted."""
    values = [float(row["ttft_s"]) for row in rows]
    groups = [[float(r["ttft_s"]) for r in group] for group in _grouped(rows, name).values()]
    if len(values) <= len(groups) or len(set(values)) < 2:
        return 0.0
    within = sum(sum((v - statistics.fmean(g)) ** 2 for v in g) for g in groups)
    within /= len(values) - len(groups)
    return max(0.0, 1 - within / statistics.variance(values))


def _squared_correlation(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if len(known) < 3 or len({x for x, _ in known}) < 2 or len({y for _, y in known}) < 2:
        return None
    first, second = zip(*known, strict=True)
    return statistics.correlation(first, second) ** 2


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _grouped(rows: list[Row], name: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return dict(groups)


def _number(row: Row, name: str) -> float | None:
    text = row.get(name)
    return float(text) if text else None


def _known(rows: list[Row], name: str) -> list[float]:
    return [value for row in rows if (value := _number(row, name)) is not None]


def _mean(rows: list[Row], name: str) -> float | None:
    return _over(rows, name, statistics.fmean)


def _over(rows: list[Row], name: str, take: Callable[[Sequence[float]], float]) -> float | None:
    values = _known(rows, name)
    return take(values) if values else None


def _milliseconds(rows: list[Row], name: str) -> str:
    value = _over(rows, name, statistics.median)
    return "" if value is None else f"{1000 * value:.2f}"


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


if __name__ == "__main__":
    print(report(Path(sys.argv[1])))
