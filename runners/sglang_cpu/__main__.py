"""`python -m runners.sglang_cpu [DIR]`: install the real SGLang for a CPU, with tiny models."""

import sys
from pathlib import Path

from runners.sglang_cpu import DEFAULT_DIR, install

if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_DIR
    server = install(root, lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201 - progress
    print(server.python)  # noqa: T201 - the result
