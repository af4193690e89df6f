"""A simulated server that has drifted: its verify calls count the prefill, as its steps do not."""

from __future__ import annotations

import sys

from runners.simulated_server.__main__ import main
from runners.simulated_server.api.replies import ReplyWriter

_accounts = ReplyWriter._accounts


def _drifted(self):
    accounts = _accounts(self)
    if "spec_verify_ct" in accounts:
        accounts["spec_verify_ct"] += 1
    return accounts


if __name__ == "__main__":
    ReplyWriter._accounts = _drifted
    main(sys.argv[1:])
