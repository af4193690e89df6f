"""Resolve argument lists from stdin with SGLang itself, and write the results to stdout.

The script runs in SGLang's environment. It parses, resolves and checks the arguments, and launches
nothing.
"""

import json
import logging
import sys

FIELDS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_draft_model_revision",
    "speculative_adaptive",
    "speculative_use_rejection_sampling",
    "max_running_requests",
    "enable_mixed_chunk",
    "disable_overlap_schedule",
)


class Collector(logging.Handler):
    """Keeps the warnings about speculation."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def resolved(argv):
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.server_args import prepare_server_args

    warned = Collector()
    logger = logging.getLogger("sglang.srt.arg_groups.speculative_hook")
    logger.addHandler(warned)
    try:
        args = prepare_server_args(argv)
        args.resolve_once()
    except SystemExit:
        return {"error": "the parser refuses it"}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": f"{type(error).__name__}: {error}".removesuffix(": ")}
    finally:
        logger.removeHandler(warned)
    view = resolving_view(args)
    return {"values": {name: getattr(view, name) for name in FIELDS}, "warnings": warned.lines}


if __name__ == "__main__":
    out = sys.stdout
    sys.stdout = sys.stderr  # SGLang prints to stdout.
    json.dump([resolved(argv) for argv in json.load(sys.stdin)], out)
