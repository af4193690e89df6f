"""`python -m runners.simulated_server --model-path X --port P [any SGLang flag]`.

The process behaves like `python -m sglang.launch_server` of SGLang 0.5.23 without a GPU and without
a model: equal flags, environment, log, API and failures. Its results are simulated, and
`/server_info` states that. `launch/environment.py` has the `TUNER_SIM_*` variables.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from runners.simulated_server.faults import crashes
from runners.simulated_server.launch.environment import read_environment
from runners.simulated_server.launch.flags import parse_flags, resolve
from runners.simulated_server.launch.log import ServerLog
from runners.simulated_server.launch.speculative_flags import FlagsRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.launch.environment import SimulationEnvironment
    from runners.simulated_server.launch.flags import ResolvedFlags


_RECOMMENDED = (
    "/srv/venv/lib/python3.11/site-packages/sglang/launch_server.py:71: UserWarning: 'python -m "
    "sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
    "  Example: sglang serve --model-path <model> [options]\n"
    "  warnings.warn("
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until SIGTERM or SIGINT (exit status 0), or crash as SGLang does."""
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_quietly)
    arguments = list(sys.argv[1:] if argv is None else argv)
    given = parse_flags(arguments)
    log = ServerLog(int(given.get("tp_size", 1)))
    log.raw(_RECOMMENDED)
    # Imported after the flags are parsed, so wrong flags end the process quickly.
    from runners.simulated_server.engine.profile import load_profile  # noqa: PLC0415

    try:
        simulation = read_environment()
        profile = load_profile(simulation.profile)
    except (ValueError, OSError) as error:
        log.raw(f"simulated server: error: {error}")
        sys.exit(2)
    try:
        flags = resolve(given)
    except FlagsRefusedError as error:
        crashes.refuse_flags(log, error)
    log.main(
        f"SIMULATED SGLang: profile={profile.name}, time_scale={simulation.time_scale}, "
        f"seed={simulation.seed}. This server has no model and no GPU."
    )
    for warning in flags.warnings:
        log.main(warning)
    log.main(f"server_args={flags.values}")
    log.main("Using default HuggingFace chat template with detected content format: string")

    if (simulation.misbehave or profile.misbehave) and _supervises(simulation, profile, flags):
        from runners.simulated_server.faults.process import supervise  # noqa: PLC0415

        sys.exit(supervise(arguments, log))

    from runners.simulated_server.launch.launch import Launch  # noqa: PLC0415

    sys.exit(Launch(arguments, flags, simulation, profile, log, began=began).run())


def _supervises(simulation: SimulationEnvironment, profile: Profile, flags: ResolvedFlags) -> bool:
    from runners.simulated_server.faults.process import supervises  # noqa: PLC0415
    from runners.simulated_server.launch.launch import facts_of, faults_of  # noqa: PLC0415

    return supervises(faults_of(simulation, profile, facts_of(flags)))


def _end_quietly(_signal: int, _frame: FrameType | None) -> None:
    # uvicorn has its own handlers while it serves, and calls these ones at its end.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
