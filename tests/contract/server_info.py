"""`/server_info` of two servers with the same flags: the same keys, and what follows from flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .shapes import Shape, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_ONE_START = {
    *("port", "random_seed", "startup_time", "launch_command"),
    *("last_gen_throughput", "avg_spec_accept_length"),
    "tuner_plugin",  # what its clock has counted; both have it (`tests/sglang/test_plugin.py`)
}
"""What differs from one start or moment to the next."""

OF_THE_MACHINE = {
    "context_length",  # given to the simulated one, which does not read the model's files
    *("mem_fraction_static", "chunked_prefill_size", "memory_usage"),  # by how much memory there is
}
"""What the simulated server cannot know."""

ITS_OWN = {"simulated"}
"""What marks it."""


def compare(real: dict[str, Any], simulated: dict[str, Any]) -> list[str]:
    """What is different, in words."""
    return [*_shapes(real, simulated), *_values(real, simulated)]


def _shapes(real: dict[str, Any], simulated: dict[str, Any]) -> Iterator[str]:
    # Keys are told by name: whoever reads 500 of them does not go by their order.
    shapes = [Shape().add(_without_types(one)) for one in (real, simulated)]
    for shape in shapes:
        shape.orders.clear()
    yield from differences(*shapes)


def _without_types(info: dict[str, Any]) -> dict[str, Any]:
    """What may be null or not by the machine has no type to compare."""
    states = [_without_types(state) for state in info.get("internal_states", [])]
    kept = {key: None if key in OF_THE_MACHINE else value for key, value in info.items()}
    kept = {key: None if key in OF_ONE_START else value for key, value in kept.items()}
    for key in (*ITS_OWN, "avg_spec_accept_length"):  # there once it was counted: see `meanings`
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
