"""Runs inside SGLang's environment: launches from stdin, what SGLang makes of them to stdout.

Nothing is launched: the arguments are parsed, resolved and checked, as a launch begins. Each
launch is `{"argv": [...], "env": {...}, "gpu": "hopper" or null, "show": [fields]}`.
"""

import contextlib
import json
import os
import sys

_NONE_OF_THEM = {
    "is_cuda": True,
    "has_flashinfer": True,
    "is_hopper_with_cuda_12_3": False,
    "is_sm90": False,
    "is_sm100": False,
    "is_sm100_or_sm110": False,
    "is_sm110": False,
    "is_sm120": False,
    "is_blackwell": False,
}
# What SGLang asks the machine about its GPU, answered as these would.
_GPUS = {
    "hopper": {
        "is_hopper_with_cuda_12_3": True,
        "is_sm90": True,
        "device_sm": 90,
        "device_capability": (9, 0),
    },
    "blackwell": {  # B200
        "is_sm100": True,
        "is_sm100_or_sm110": True,
        "is_blackwell": True,
        "device_sm": 100,
        "device_capability": (10, 0),
    },
    "rtx_blackwell": {  # RTX PRO 6000
        "is_sm120": True,
        "is_blackwell": True,
        "device_sm": 120,
        "device_capability": (12, 0),
    },
}


def machine(gpu):
    if gpu is None:
        return contextlib.nullcontext()
    from sglang.srt.runtime_context import override_platform

    return override_platform(**(_NONE_OF_THEM | _GPUS[gpu]))


def resolved(argv, gpu, show):
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.server_args import prepare_server_args

    try:
        with machine(gpu):
            args = prepare_server_args([*argv, "--device", "cuda"] if gpu else argv)
            args.resolve_once()
            args.check_server_args()
    except SystemExit:
        return {"error": "the parser refuses it"}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    view = resolving_view(args)
    speculation = {
        "algorithm": view.speculative_algorithm or "none",
        "num_steps": view.speculative_num_steps,
        "topk": view.speculative_eagle_topk,
        "num_draft_tokens": view.speculative_num_draft_tokens,
    }
    return {"speculation": speculation, "shown": {name: getattr(view, name) for name in show}}


def answer(launch):
    before = dict(os.environ)
    os.environ.update(launch["env"])
    try:
        return resolved(launch["argv"], launch["gpu"], launch["show"])
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    out = sys.stdout
    sys.stdout = sys.stderr  # SGLang prints as it pleases.
    json.dump([answer(launch) for launch in json.load(sys.stdin)], out)
