"""The workload's fingerprint: equal for equal load, whatever server it is sent to."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload


def fingerprint(
    prompts: Sequence[Prompt], workload: Workload, arrivals: Sequence[float] = ()
) -> str:
    """A digest over what is sent: the rendered prompts in their order, the sampling, and when.

    Args:
        prompts: The prompts of one window, as rendered.
        workload: Gives sampling and mean output length.
        arrivals: Times of an open loop, in the server's own seconds; none in a closed one.
    """
    digest = hashlib.sha256()
    sampling = {
        **dict(workload.sampling),
        "temperature": float(workload.temperature),
        "max_new_tokens": workload.output_tokens,
        "ignore_eos": not workload.natural_length,
    }
    digest.update(json.dumps(sampling, sort_keys=True).encode())
    for prompt in prompts:
        content: object = prompt.text if prompt.input_ids is None else list(prompt.input_ids)
        if prompt.messages is not None:
            content = prompt.messages
        digest.update(b"\n" + json.dumps(content).encode())
        # Loads of equal answers keep the fingerprint that they had before lengths could vary.
        if prompt.output_tokens not in {None, workload.output_tokens}:
            digest.update(b"\n%d" % prompt.output_tokens)
    if arrivals:
        digest.update(b"\n" + json.dumps(list(arrivals)).encode())
    return digest.hexdigest()
