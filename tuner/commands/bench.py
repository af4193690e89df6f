"""`tuner bench`: measure a running server in one window or several."""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from tuner.errors import CommandError, Exit
from tuner.formatting import counted, describe_figures, describe_number, describe_reasons
from tuner.reports.json_text import dump
from tuner.reports.report import point_dict
from tuner.verdict.student_t import mean_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import Failure, Measurement
    from runners.load.running_server import Target
    from runners.load.schedule.arrivals import ArrivalProcess
    from search_spaces.workload import Workload
    from tuner.commands.bench_options import BenchOptions


# Failures that another option prevents; these and faults of the study are wrong usage.
_USAGE = frozenset(
    {
        "bad_url",
        "flush_refused",
        "no_endpoint",
        "no_fixed_length",
        "no_models",
        "not_sglang",
        "too_many_files",
        "unauthorized",
    }
)


_CACHED = (
    "the prefix cache of this server is not emptied between windows, so prompts of later windows "
    "may come from the cache: switch the cache off"
)
_UNSEEN = (
    "compiled: the bench does not read the server's log, so compiling in the window is not found",
    "prompt_tokens: the tokens of a text are only checked against the text's length in bytes",
)


def bench(options: BenchOptions, *, as_json: bool) -> Exit:
    """Measure one window or several and print them.

    Raises:
        CommandError: The server failed, or Ctrl-C was pressed. Finished windows are printed first.
    """
    workload, arrivals = _with_arrivals(options, options.workload())
    notes = [arrivals.note] if arrivals is not None and arrivals.note is not None else []
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
    point = workload.points[0]
    from runners.load.running_server import bench_windows, find_target  # noqa: PLC0415 - heavy

    url, key = options.base_url, options.key()
    windows: list[Measurement] = []
    ended: CommandError | None = None
    try:
        with _command_errors(url):
            target = find_target(
                url,
                options.endpoint,
                model=options.model,
                api_key=key,
                natural_length=options.natural_length,
            )
            _announce(url, target, workload, arrivals.times if arrivals is not None else ())
            measuring = bench_windows(
                url,
                workload,
                point,
                prompts=_prompts(options, workload, target),
                seed=options.seed,
                request_timeout_s=options.timeout_s,
                api_key=key,
                target=target,
                processes=options.processes,
                burst=options.burst,
                whole_run=options.whole_run,
            )
            for measurement in islice(measuring, options.repeat):
                windows.append(measurement)
                if options.repeat > 1:
                    progress = describe_progress(windows, options.repeat)
                    sys.stderr.write(f"{progress}\n")
    except CommandError as error:
        if not windows:
            raise
        ended = error
    unchecked = [*_UNSEEN, *target.unchecked]
    if options.repeat > 1 and not target.facts.is_sglang:
        unchecked.append(_CACHED)
    if as_json:
        measured = (
            to_dict(windows, options.repeat, ended_early=ended)
            if options.repeat > 1
            else point_dict(windows[0])
        )
        context = {"unchecked": unchecked, "notes": notes, "window_kind": options.window_kind}
        sys.stdout.write(dump({**_server_dict(url, target), **context, **measured}))
    else:
        _print(url, target, windows, unchecked, options, ended=ended)
    if ended is not None:
        sys.stdout.flush()
        raise ended
    return Exit.DONE


@contextlib.contextmanager
def _command_errors(url: str) -> Iterator[None]:
    """Turn errors of a measurement into a `CommandError` with an exit code."""
    from runners.base import RunnerError  # noqa: PLC0415 - the transport is heavy
    from runners.load.prompts.prompts import (  # noqa: PLC0415
        NotEnoughPromptsError,
        PromptFileError,
    )

    try:
        yield
    except (NotEnoughPromptsError, PromptFileError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt as error:
        raise CommandError("interrupted", Exit.INTERRUPTED) from error
    except RunnerError as error:
        raise _error_of(error.failure, url) from error


def _error_of(failure: Failure, url: str) -> CommandError:
    """Return message and exit code of a failure: wrong usage, or a fault of the server."""
    is_usage = failure.fault == "study" or failure.kind in _USAGE
    message = failure.message
    if failure.kind == "not_sglang":
        message += "; for other servers use --endpoint completions or chat"
    where = "" if url in message else f"{url}: "
    return CommandError(f"{where}{message}", Exit.USAGE if is_usage else Exit.FAULT)


def _with_arrivals(
    options: BenchOptions, workload: Workload
) -> tuple[Workload, ArrivalProcess | None]:
    """Return the workload and the arrivals of an open loop (`None` in a closed loop).

    Without `--requests` the workload gets all arrivals of the trace.

    Raises:
        CommandError: The trace or the rate cannot be used.
    """
    from runners.load.schedule.arrivals import (  # noqa: PLC0415
        ArrivalTraceError,
        arrivals_of,
        read_trace,
    )

    point = workload.points[0]
    if not point.is_open:
        return workload, None
    try:
        if point.trace is not None and point.requests is None:
            count = len(read_trace(workload.path(point.trace)).times)
            workload = replace(workload, points=(replace(point, requests=count),))
        return workload, arrivals_of(workload.points[0], workload, options.seed)
    except ArrivalTraceError as error:
        if point.trace is None:
            raise CommandError(f"--request-rate: {error}") from error
        path = workload.path(point.trace)
        message = str(error).replace(f"the trace {path}", "the file")
        where = "--trace" if message.startswith(f"{path}") else f"--trace {path}:"
        raise CommandError(f"{where} {message}") from error


def _announce(url: str, target: Target, workload: Workload, arrivals: Sequence[float]) -> None:
    """Describe the load on stderr before it starts."""
    point = workload.points[0]
    line = f"{url}{target.endpoint.path}, {point.name}: {workload.requests_at(point)} requests"
    if arrivals:
        line += f" over {arrivals[-1]:.1f} s"
        if arrivals[-1] > 0:
            line += f", {(len(arrivals) - 1) / arrivals[-1]:.2f} a second on average"
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _prompts(options: BenchOptions, workload: Workload, target: Target) -> Any:  # noqa: ANN401 - a heavy import's type
    from runners.load.prompts.server_python import ServerPython  # noqa: PLC0415
    from runners.load.prompts.sources import prompt_source  # noqa: PLC0415

    model = target.facts.raw.get("model_path") or options.model
    server = ServerPython((options.python,), str(model)) if options.python and model else None
    return prompt_source(workload.prompts, server=server, shared_prefix=workload.shared_prefix)


def _server_dict(url: str, target: Target) -> dict[str, Any]:
    return {
        "url": url,
        "endpoint": target.endpoint.name,
        "sglang": target.facts.is_sglang,
        "sglang_version": _version(target),
    }


def _version(target: Target) -> str | None:
    """Return the version that an SGLang server reports; `None` for other servers."""
    return target.facts.version if target.facts.is_sglang else None


def _print(
    url: str,
    target: Target,
    windows: Sequence[Measurement],
    unchecked: Sequence[str],
    options: BenchOptions,
    *,
    ended: CommandError | None,
) -> None:
    first = windows[0]
    kind = "" if options.window_kind == "steady" else f", {options.window_kind.replace('_', ' ')}"
    mark = "; all figures and times are simulated" if first.simulated else ""
    rows = [
        ("server", f"{url}{target.endpoint.path}, {first.point.name}{kind}{mark}"),
        ("SGLang", _version(target) or "no"),
    ]
    if len(windows) == 1:
        rows += describe_figures(first)
    lines = [f"{name:<26}{value}" for name, value in rows]
    reasons = describe_reasons(first)
    if len(windows) > 1:
        lines += describe_windows(windows)
        reasons = describe_all_reasons(windows)
    elif target.facts.speculation.enabled and first.tokens_per_chunk > 1:
        lines.append(
            "a chunk carries all tokens of a verify: the time between chunks is not inter-token "
            "latency, use TPOT"
        )
    lines += [f"not checked: {note}" for note in unchecked]
    lines += [
        f"{reason}{'' if n else ' (see docs/validity.md)'}" for n, reason in enumerate(reasons)
    ]
    if ended is not None:
        count = f"{len(windows)} of {counted(options.repeat, 'window')}"
        lines.append(f"ended early after {count}: {ended}")
    sys.stdout.writelines(f"{line}\n" for line in lines)


LEVEL = 0.95

_FIGURES = {
    "output_tok_s": ("output tok/s", ".1f"),
    "user_tok_s": ("tok/s of one user", ".1f"),
    "ttft_p50_ms": ("TTFT p50 ms", ".1f"),
    "tpot_p50_ms": ("TPOT p50 ms", ".2f"),
    "accept_length": ("accept length", ".3f"),
}
"""Title and format of each figure that has an interval."""


def to_dict(
    windows: Sequence[Measurement], repeat: int, *, ended_early: Exception | None = None
) -> dict[str, Any]:
    """Return the JSON of several windows, as `docs/contract.md` describes it.

    Args:
        windows: Finished windows, at least one.
        repeat: Requested number of windows.
        ended_early: Error that prevented further windows; `None` if all windows are finished.
    """
    return {
        "repeat": repeat,
        "ended_early": None if ended_early is None else str(ended_early),
        "windows": [point_dict(window) for window in windows],
        "valid_windows": len(_valid(windows)),
        "mean": {name: _mean(windows, name) for name in _FIGURES},
        "interval95": {name: _interval(windows, name) for name in _FIGURES},
    }


def describe_progress(windows: Sequence[Measurement], repeat: int) -> str:
    """Describe the newest window: `"window 2 of 3: 93.8 tok/s"`."""
    last = windows[-1]
    invalid = ", invalid" if last.invalid else ""
    return f"window {len(windows)} of {repeat}: {last.output_tok_s:.1f} tok/s{invalid}"


def describe_windows(windows: Sequence[Measurement]) -> list[str]:
    """Return a table with a row for each window, the mean, and the limits of its interval."""
    names = [name for name in _FIGURES if any(map(math.isfinite, _values(windows, name)))]
    rows = [
        (f"window {n}{' (invalid)' if window.invalid else ''}", [getattr(window, x) for x in names])
        for n, window in enumerate(windows, 1)
    ]
    valid = len(_valid(windows))
    if valid > 1:
        intervals = [_interval(windows, name) or (None, None) for name in names]
        rows += [
            ("mean", [_mean(windows, name) for name in names]),
            (f"{100 * LEVEL:.0f} % from", [low for low, _ in intervals]),
            (f"{100 * LEVEL:.0f} % to", [high for _, high in intervals]),
        ]
        note = (
            f"The interval (Student's t, {valid} valid windows) covers noise between windows of "
            "one server, not between launches."
        )
    else:
        note = (
            f"No interval: {valid} of {len(windows)} windows {'is' if valid == 1 else 'are'} valid "
            "and at least 2 are needed; see the reasons below"
        )
    header = "".join(f"{_FIGURES[name][0]:>19}" for name in names)
    lines = [f"{'':<20}{header}"]
    for title, values in rows:
        cells = zip(names, values, strict=True)
        shown = (f"{describe_number(value, _FIGURES[name][1]) or '-':>19}" for name, value in cells)
        lines.append(f"{title:<20}{''.join(shown)}")
    return [*lines, note]


def describe_all_reasons(windows: Sequence[Measurement]) -> list[str]:
    """Return reasons and warnings of all windows, each with the number of its window."""
    return [
        f"window {n}: {reason}"
        for n, window in enumerate(windows, 1)
        for reason in describe_reasons(window)
    ]


def _valid(windows: Sequence[Measurement]) -> list[Measurement]:
    return [window for window in windows if not window.invalid]


def _values(windows: Sequence[Measurement], name: str) -> list[float]:
    """Return a figure of each window; NaN if the figure was not measured."""
    values = (getattr(window, name) for window in windows)
    return [math.nan if value is None else float(value) for value in values]


def _mean(windows: Sequence[Measurement], name: str) -> float | None:
    values = _values(_valid(windows), name)
    return statistics.fmean(values) if _interval(windows, name) else None


def _interval(windows: Sequence[Measurement], name: str) -> tuple[float, float] | None:
    """Return the limits of the mean over the valid windows; `None` for fewer than two values."""
    values = _values(_valid(windows), name)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return mean_interval(values, LEVEL)
