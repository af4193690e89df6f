"""`python -m runners.sglang_cpu [DIR]`: install the real SGLang for a CPU, with tiny models."""

import sys

from runners.sglang_cpu.install import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
