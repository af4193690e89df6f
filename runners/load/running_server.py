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
    """Options of the load generator (`LoadGenerator`); its defaults hold for missing keys."""

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
    """Measure one window: see `bench_windows`."""
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
    """Measure the server at `url` window after window, each when the caller asks for it.

    The server is real or simulated, with any speculation. All windows send the same prompts and
    ask for the same lengths of answers. The prefix cache of an SGLang server is emptied before each
    window. Nothing else may use the server meanwhile.

    Args:
        url: `http://host:port`.
        workload: What to send.
        point: The operating point.
        target: What the server is and how to speak to it, from `find_target`; SGLang and its
            `/generate` if not given.
        prompts: Where prompts come from; the workload's built-in sets if not given.
        renderer: Applies the chat template; prompts are sent as they are without one.
        api_key: Sent as bearer token where given.
        **options: See `LoadOptions`.

    Raises:
        RunnerError: No server there, or it died, hung or refused the load.
        NotEnoughPromptsError: The prompt source is too small for the point.
    """
    target = target or find_target(url, api_key=api_key)
    facts = target.facts
    generator = LoadGenerator(
        url,
        workload,
        prompts or BuiltInPrompts(workload.prompts),
        renderer or target.renderer,
        time_scale=facts.time_scale,
        simulated=facts.simulated,
        api_key=api_key,
        endpoint=target.endpoint,
        watches=(
            (ServerIdentityWatch(url, launched=facts.raw, api_key=api_key),)
            if facts.is_sglang
            else ()
        ),
        **options,
    )
    while True:
        yield generator.measure(point, speculation=target.speculation, server_info=facts.raw)
