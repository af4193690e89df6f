"""Runs inside SGLang's environment: argument lists from stdin, what SGLang makes of them to stdout.

Nothing is launched: the arguments are parsed, resolved and checked, as a launch begins.
"""

import json
import sys


def resolved(argv):
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.server_args import prepare_server_args

    try:
        args = prepare_server_args(argv)
        args.resolve_once()
        args.check_server_args()
    except SystemExit:
        return {"error": "the parser refuses it"}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    view = resolving_view(args)
    return {
        "algorithm": view.speculative_algorithm,
        "num_steps": view.speculative_num_steps,
        "topk": view.speculative_eagle_topk,
        "num_draft_tokens": view.speculative_num_draft_tokens,
    }


if __name__ == "__main__":
    out = sys.stdout
    sys.stdout = sys.stderr  # SGLang prints as it pleases.
    json.dump([resolved(argv) for argv in json.load(sys.stdin)], out)
