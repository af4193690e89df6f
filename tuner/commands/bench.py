"""`tuner bench`: one measurement of a server that somebody else started."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuner.errors import CommandError, Exit
from tuner.json_text import dump
from tuner.report import point_dict
from tuner.words import describe_figures, describe_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import Measurement
    from runners.load.probe import Target
    from search_spaces.workload import Workload
    from tuner.commands.bench_options import BenchOptions

# Failures that another option would have prevented are wrong usage, as are faults of the study.
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


_UNSEEN = (
    "compiled: the server's log is not seen, so what it compiled in the window is not known",
    "prompt_tokens: the number of a text's tokens is only checked against its length in bytes",
)


def bench(options: BenchOptions, *, as_json: bool) -> Exit:
    """Measures one window and prints it; exit code 4 if the server fails meanwhile."""
    workload, arrivals = _with_arrivals(options, options.workload())
    point = workload.points[0]
    from runners.base import RunnerError  # noqa: PLC0415 - the transport is heavy
    from runners.load import NotEnoughPromptsError, PromptFileError  # noqa: PLC0415
    from runners.load import bench as measure  # noqa: PLC0415
    from runners.load.probe import find_target  # noqa: PLC0415

    url, key = options.base_url, options.key()
    try:
        target = find_target(
            url,
            options.endpoint,
            model=options.model,
            api_key=key,
            natural_length=options.natural_length,
        )
        _announce(url, target, workload, arrivals)
        measurement = measure(
            url,
            workload,
            point,
            prompts=_prompts(options, workload, target),
            seed=options.seed,
            request_timeout_s=options.timeout_s,
            api_key=key,
            target=target,
            processes=options.processes,
        )
    except (NotEnoughPromptsError, PromptFileError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt as error:
        raise CommandError("interrupted", Exit.INTERRUPTED) from error
    except RunnerError as error:
        failure = error.failure
        is_usage = failure.fault == "study" or failure.kind in _USAGE
        code = Exit.USAGE if is_usage else Exit.FAULT
        message = failure.message
        if failure.kind == "not_sglang":
            message += "; other servers are measured with --endpoint completions or chat"
        where = "" if url in message else f"{url}: "
        raise CommandError(f"{where}{message}", code) from error
    if as_json:
        sys.stdout.write(dump(_to_dict(url, target, measurement)))
    else:
        _print(url, target, measurement)
    return Exit.DONE


def _with_arrivals(options: BenchOptions, workload: Workload) -> tuple[Workload, tuple[float, ...]]:
    """The times of an open loop; without `--requests` all of a trace. None in a closed loop.

    Raises:
        CommandError: The trace or the rate cannot be used.
    """
    from runners.load.arrivals import ArrivalTraceError, arrivals_of, read_trace  # noqa: PLC0415

    point = workload.points[0]
    if not point.is_open:
        return workload, ()
    try:
        if point.trace is not None and point.requests is None:
            count = len(read_trace(workload.path(point.trace)).times)
            workload = replace(workload, points=(replace(point, requests=count),))
        return workload, arrivals_of(workload.points[0], workload, options.seed).times
    except ArrivalTraceError as error:
        if point.trace is None:
            raise CommandError(f"--request-rate: {error}") from error
        path = workload.path(point.trace)
        what = str(error).replace(f"the trace {path}", "it")
        what = f"--trace {what}" if what.startswith(f"{path}") else f"--trace {path}: {what}"
        raise CommandError(what) from error


def _announce(url: str, target: Target, workload: Workload, arrivals: Sequence[float]) -> None:
    """Says what begins, on stderr: a long load is then no mystery."""
    point = workload.points[0]
    line = f"{url}{target.endpoint.path}, {point.name}: {workload.requests_at(point)} requests"
    if arrivals:
        line += f" over {arrivals[-1]:.1f} s"
        if arrivals[-1] > 0:
            line += f", {(len(arrivals) - 1) / arrivals[-1]:.2f} a second on average"
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _prompts(options: BenchOptions, workload: Workload, target: Target) -> Any:  # noqa: ANN401 - a heavy import's type
    from runners.load import prompt_source  # noqa: PLC0415
    from runners.load.server_python import ServerPython  # noqa: PLC0415

    model = target.facts.raw.get("model_path") or options.model
    server = ServerPython((options.python,), str(model)) if options.python and model else None
    return prompt_source(workload.prompts, server=server, shared_prefix=workload.shared_prefix)


def _to_dict(url: str, target: Target, measurement: Measurement) -> dict[str, Any]:
    return {
        "url": url,
        "endpoint": target.endpoint.name,
        "sglang": target.facts.is_sglang,
        "sglang_version": _version(target),
        "unchecked": [*_UNSEEN, *target.unchecked],
        **point_dict(measurement),
    }


def _version(target: Target) -> str | None:
    """As the server states it; `None` of a server that is not SGLang."""
    return target.facts.version if target.facts.is_sglang else None


def _print(url: str, target: Target, measurement: Measurement) -> None:
    mark = "; all figures simulated, times included" if measurement.simulated else ""
    rows = [
        ("server", f"{url}{target.endpoint.path}, {measurement.point.name}{mark}"),
        ("SGLang", _version(target) or "no"),
        *describe_figures(measurement),
    ]
    for name, value in rows:
        sys.stdout.write(f"{name:<26}{value}\n")
    if target.facts.speculation.enabled and measurement.tokens_per_chunk > 1:
        sys.stdout.write(
            "a chunk carries all tokens of a verify: the time between chunks is not inter-token "
            "latency, use TPOT\n"
        )
    for note in (*_UNSEEN, *target.unchecked):
        sys.stdout.write(f"not checked: {note}\n")
    for n, reason in enumerate(describe_reasons(measurement)):
        sys.stdout.write(f"{reason}{'' if n else ' (see docs/validity.md)'}\n")
