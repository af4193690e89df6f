"""A server that speaks SGLang's API without a GPU: its costs come from a profile.

Start it with `python -m runners.simulated_server` (see `__main__`). What can be imported here is
the profile's arithmetic, for tests and for the replay of a profile on a virtual clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from runners.simulated_server.cost import CycleTime
    from runners.simulated_server.expectation import Expectation, expected
    from runners.simulated_server.profile import Profile, load_profile

__all__ = ["CycleTime", "Expectation", "Profile", "expected", "load_profile"]


def __getattr__(name: str) -> object:
    # Lazy: importing the package must not import pydantic and yaml.
    if name in {"Expectation", "expected"}:
        from runners.simulated_server import expectation  # noqa: PLC0415

        return cast("object", getattr(expectation, name))
    if name == "CycleTime":
        from runners.simulated_server import cost  # noqa: PLC0415

        return cast("object", getattr(cost, name))
    if name in {"Profile", "load_profile"}:
        from runners.simulated_server import profile  # noqa: PLC0415

        return cast("object", getattr(profile, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
