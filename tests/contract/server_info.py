"""Comparison of `/server_info`: keys, and values that depend on the flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .shapes import Shape, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_ONE_START = {
    *("port", "random_seed", "startup_time", "launch_command"),
    *("last_gen_throughput", "avg_spec_accept_length"),
    "tuner_plugin",  # counts of the cycle clock, see `tests/sglang/test_plugin.py`
}
"""Keys that differ between starts or times."""

OF_THE_MACHINE = {
    "context_length",  # a flag of the simulated server, which does not read model files
    *("mem_fraction_static", "chunked_prefill_size", "memory_usage"),  # depends on the memory
}
"""Keys that the simulated server cannot know."""

ITS_OWN = {"simulated"}
"""Keys that mark the simulated server."""


def compare(real: dict[str, Any], simulated: dict[str, Any]) -> list[str]:
    """Describe the differences."""
    return [*_shapes(real, simulated), *_values(real, simulated)]


def _shapes(real: dict[str, Any], simulated: dict[str, Any]) -> Iterator[str]:
    # The order of the 500 keys does not matter.
    shapes = [Shape().add(_without_types(one)) for one in (real, simulated)]
    for shape in shapes:
        shape.orders.clear()
    yield from differences(*shapes)


def _without_types(info: dict[str, Any]) -> dict[str, Any]:
    """Return the shape without keys that may be null."""
    states = [_without_types(state) for state in info.get("internal_states", [])]
    kept = {key: None if key in OF_THE_MACHINE else value for key, value in info.items()}
    kept = {key: None if key in OF_ONE_START else value for key, value in kept.items()}
    for key in (*ITS_OWN, "avg_spec_accept_length"):  # appears with its first count, see `meanings`
        kept.pop(key, None)
    return kept | ({"internal_states": states} if states else {})


def _values(real: dict[str, Any], simulated: dict[str, Any], place: str = "") -> Iterator[str]:
    for key in real.keys() & simulated.keys() - OF_ONE_START - OF_THE_MACHINE - ITS_OWN:
        theirs, ours = real[key], simulated[key]
        if key == "internal_states":
            for their_state, our_state in zip(theirs, ours, strict=True):
                yield from _values(their_state, our_state, f"{key}.")
        elif theirs != ours:
            yield f"{place}{key}: {ours!r}, not {theirs!r}"
