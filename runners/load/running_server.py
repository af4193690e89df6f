"""Measure a server that is already running."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from runners.load.generator import LoadGenerator
from runners.load.http.probe import find_target
from runners.load.prompts.prompts import BuiltInPrompts
from runners.load.window.watches import ServerIdentityWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import Measurement
    from runners.load.http.probe import Target
    from runners.load.prompts.prompts import PromptSource
    from runners.load.prompts.rendering import Renderer
    from search_spaces.workload import OperatingPoint, Workload


class LoadOptions(TypedDict, total=False):
    """Options of `LoadGenerator`; its defaults apply to missing keys."""

    seed: int
    request_timeout_s: float
    stall_timeout_s: float
    processes: int | None
    burst: bool
    whole_run: bool


class BenchOptions(LoadOptions, total=False):
    """Options of `bench`; see `bench_windows`."""

    target: Target | None
    prompts: PromptSource | None
    renderer: Renderer | None
    api_key: str | None


def bench(
    url: str, workload: Workload, point: OperatingPoint, **options: Unpack[BenchOptions]
) -> Measurement:
    """Measure one window; see `bench_windows`."""
    return next(bench_windows(url, workload, point, **options))


def bench_windows(
    url: str,
    workload: Workload,
    point: OperatingPoint,
    *,
    target: Target | None = None,
    prompts: PromptSource | None = None,
    renderer: Renderer | None = None,
    api_key: str | None = None,
    **options: Unpack[LoadOptions],
) -> Iterator[Measurement]:
    """Measure a real or simulated server; each `next` measures one window.

    All windows send the same prompts and request the same answer lengths. The prefix cache of an
    SGLang server is emptied before each window. No other client may use the server meanwhile.

    Args:
        url: `http://host:port`.
        workload: Requested load.
        point: Operating point.
        target: Result of `find_target`; defaults to SGLang's `/generate`.
        prompts: Source of the prompts; defaults to the workload's built-in sets.
        renderer: Applies the chat template; defaults to the target's.
        api_key: Bearer token.
        **options: See `LoadOptions`.

    Raises:
        RunnerError: No server answers, or the server died, hung or refused the load.
        NotEnoughPromptsError: The prompt source is too small for the point.
    """
    target = target or find_target(url, api_key=api_key)
    facts = target.facts
    watch = ServerIdentityWatch(url, launched=facts.raw, api_key=api_key)
    generator = LoadGenerator(
        url,
        workload,
        prompts or BuiltInPrompts(workload.prompts),
        renderer or target.renderer,
        time_scale=facts.time_scale,
        simulated=facts.simulated,
        api_key=api_key,
        endpoint=target.endpoint,
        watches=(watch,) if facts.is_sglang else (),
        **options,
    )
    while True:
        yield generator.measure(point, speculation=target.speculation, server_info=facts.raw)
