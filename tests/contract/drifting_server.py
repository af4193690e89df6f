"""A simulated server with a drift: its verify calls include the prefill."""

from __future__ import annotations

import sys

from runners.simulated_server.__main__ import main
from runners.simulated_server.api.replies import ReplyWriter

_counts = ReplyWriter._counts


def _drifted(self):
    counts = _counts(self)
    if "spec_verify_ct" in counts:
        counts["spec_verify_ct"] += 1
    return counts


if __name__ == "__main__":
    ReplyWriter._counts = _drifted
    main(sys.argv[1:])
