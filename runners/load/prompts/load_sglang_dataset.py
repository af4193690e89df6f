"""Helper script: load a data set with SGLang's code in the Python of the server's environment.

The script reads `{"model_path", "trust_remote_code", "dataset", "options", "seed"}` from stdin and
writes one JSON line `{"prompts"}` to stdout. A prompt is a text, a list of token ids, or a list of
turns. The tuner is not installed there.
"""

from __future__ import annotations

import sys

# With `-c` the working directory is first on the path; its files must not shadow modules.
sys.path[:] = [path for path in sys.path if path]

import json  # noqa: E402
from typing import Any  # noqa: E402


def arguments(serving: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401
    """Parse a command line of `sglang.benchmark.serving` with SGLang's own parser (0.5.23).

    The parser is inside the function that then runs the benchmark, so the benchmark is replaced.
    """
    if not hasattr(serving, "cli_main"):
        raise SystemExit("this SGLang has no sglang.benchmark.serving.cli_main; use SGLang 0.5.23")
    caught: list[Any] = []
    serving.run_benchmark = caught.append
    words = ["--dataset-name", request["dataset"], "--seed", str(request["seed"])]
    for name, value in request["options"]:
        words += ["--" + name] + ([value] if value else [])
    sys.argv = ["bench_serving", "--backend", "sglang", "--model", request["model_path"], *words]
    serving.cli_main()
    return caught[0]


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    import random  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415
    from sglang.benchmark import serving  # noqa: PLC0415 - slow, and only there
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
