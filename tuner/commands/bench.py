"""`tuner bench`: one measurement of a server that somebody else started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tuner.errors import CommandError, Exit
from tuner.export import dump
from tuner.report import point_dict
from tuner.words import describe_figures, describe_reasons

if TYPE_CHECKING:
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


def bench(options: BenchOptions, *, as_json: bool) -> Exit:
    """Measures one window and prints it; exit code 4 if the server fails meanwhile."""
    workload = options.workload()
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
        "unchecked": list(target.unchecked),
        **point_dict(measurement),
    }


def _print(url: str, target: Target, measurement: Measurement) -> None:
    rows = [
        ("server", f"{url}{target.endpoint.path}, {measurement.point.name}"),
        *describe_figures(measurement),
    ]
    for name, value in rows:
        sys.stdout.write(f"{name:<26}{value}\n")
    if measurement.tokens_per_chunk > 1:
        sys.stdout.write(
            "a chunk carries all tokens of a verify: the time between chunks is no inter-token "
            "latency; TPOT is\n"
        )
    for note in target.unchecked:
        sys.stdout.write(f"not checked: {note}\n")
    for reason in describe_reasons(measurement):
        sys.stdout.write(f"{reason}\n")
