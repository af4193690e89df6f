"""A runner that answers from a table of tok/s."""

from __future__ import annotations

import time

from results.records import Measurement, ProcessIdentity, Resolved
from runners.base import LaunchCommand, Runner, Session

TOK_S = {0: 90.0, 1: 97.0, 2: 93.0, 3: 88.0}  # by speculative steps


class TableSession(Session):
    phases = (("load", 0.0),)
    ready_s = 0.0

    def __init__(self, configuration, workload):
        self.resolved = Resolved(configuration, "other engine 1.0")
        self._workload = workload

    def measure(self, point):
        tok_s = TOK_S[self.resolved.configuration.speculation.num_steps or 0]
        requests = self._workload.requests_at(point)
        tokens = requests * self._workload.output_tokens
        return Measurement(
            point=point,
            started_at=time.time(),
            window_s=tokens / tok_s,
            requests=requests,
            failed_requests=0,
            output_tokens=tokens,
            output_tok_s=tok_s,
            accept_length=None,
            ttft_p50_ms=10.0,
            ttft_p95_ms=10.0,
            tpot_p50_ms=1000.0 / tok_s,
            tpot_p95_ms=1000.0 / tok_s,
            e2e_p50_ms=1000.0 * self._workload.output_tokens / tok_s,
            e2e_p95_ms=1000.0 * self._workload.output_tokens / tok_s,
            prompt_tokens=0,
            cached_tokens=0,
            histogram=(),
            workload_fingerprint="table",
            simulated=False,
        )

    def close(self):
        pass


class TableRunner(Runner):
    name = "table"

    def __init__(self, study, *, seed, log_dir, first_launch, timeouts):
        self._workload = study.to_workload()

    def command(self, configuration):
        steps = configuration.speculation.num_steps or 0
        return LaunchCommand(("other-engine", f"--draft-steps={steps}"))

    def start(self, intent, on_process, on_progress=None):
        on_process(ProcessIdentity(0, 0.0, intent.mark, 0), self.command(intent.configuration))
        return TableSession(intent.configuration, self._workload)

    def end_leftover(self, process):
        return ()  # no processes
