"""Loads a data set with SGLang's own code; its text is run by the server environment's Python.

Reads `{"model_path", "trust_remote_code", "dataset", "options", "seed"}` from stdin and writes one
JSON line `{"prompts"}` to stdout: each a text, a list of token ids, or a list of turns. Nothing of
the tuner can be imported there.
"""

from __future__ import annotations

import sys

# Run by `-c`, the working directory comes first on the path: it must shadow nothing.
sys.path[:] = [path for path in sys.path if path]

import json  # noqa: E402
from typing import Any  # noqa: E402


def arguments(serving: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401
    """The command line of `sglang.benchmark.serving`, read by SGLang itself (0.5.23).

    Its parser lives inside the function that goes on to run the benchmark, which is caught there.
    """
    if not hasattr(serving, "cli_main"):
        raise SystemExit("this SGLang's benchmark is not that of 0.5.23: it has no cli_main")
    caught: list[Any] = []
    serving.run_benchmark = caught.append
    words = ["--dataset-name", request["dataset"], "--seed", str(request["seed"])]
    for name, value in request["options"]:
        words += ["--" + name] + ([value] if value else [])
    sys.argv = ["bench_serving", "--backend", "sglang", "--model", request["model_path"], *words]
    serving.cli_main()
    return caught[0]


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    import random  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415
    from sglang.benchmark import serving  # noqa: PLC0415 - seconds, and only in that environment
    from transformers import AutoTokenizer  # noqa: PLC0415

    args = arguments(serving, request)
    tokenizer = AutoTokenizer.from_pretrained(
        request["model_path"], trust_remote_code=request["trust_remote_code"]
    )
    random.seed(request["seed"])
    np.random.seed(request["seed"])
    rows = serving.get_dataset(args, tokenizer, request["model_path"])
    prompts = [row.prompt for row in rows]
    sys.stdout.write("\n" + json.dumps({"prompts": prompts}) + "\n")


if __name__ == "__main__":
    main()
