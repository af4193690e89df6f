"""One window against a server that somebody else started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.load.generator import REQUEST_TIMEOUT_S, STALL_TIMEOUT_S, LoadGenerator
from runners.load.probe import find_target
from runners.load.prompts import BuiltInPrompts
from runners.load.watches import ServerIdentityWatch

if TYPE_CHECKING:
    from results.records import Measurement
    from runners.load.probe import Target
    from runners.load.prompts import PromptSource
    from runners.load.rendering import Renderer
    from search_spaces.workload import OperatingPoint, Workload


def bench(
    url: str,
    workload: Workload,
    point: OperatingPoint,
    *,
    prompts: PromptSource | None = None,
    renderer: Renderer | None = None,
    seed: int = 0,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    stall_timeout_s: float = STALL_TIMEOUT_S,
    api_key: str | None = None,
    target: Target | None = None,
    processes: int | None = None,
) -> Measurement:
    """Measures the server at `url`: real or simulated, with whatever speculation it runs.

    It empties an SGLang server's prefix cache; nothing else may use the server meanwhile.

    Args:
        url: `http://host:port`.
        workload: What to send.
        point: The operating point.
        prompts: Where prompts come from; the workload's built-in sets if not given.
        renderer: Applies the chat template; prompts are sent as they are without one.
        seed: Selects the prompts.
        request_timeout_s: Real seconds that one request may take.
        stall_timeout_s: Real seconds of silence before the server counts as hung.
        api_key: Sent as bearer token where given.
        target: What the server is and how to speak to it, from `find_target`; SGLang and its
            `/generate` if not given.
        processes: Client processes; the load generator chooses if not given.

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
        seed=seed,
        time_scale=facts.time_scale,
        simulated=facts.simulated,
        request_timeout_s=request_timeout_s,
        stall_timeout_s=stall_timeout_s,
        api_key=api_key,
        endpoint=target.endpoint,
        processes=processes,
        watches=(
            (ServerIdentityWatch(url, launched=facts.raw, api_key=api_key),)
            if facts.is_sglang
            else ()
        ),
    )
    return generator.measure(
        point,
        speculation=target.speculation,
        server_info=facts.raw,
    )
