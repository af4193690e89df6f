"""Everything that a report shows, and its JSON (`docs/contract.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.sglang.command import shell
from tuner.verdict.verdict import Verdict, verdict

if TYPE_CHECKING:
    from results.records import Launch, Measurement, Trial
    from results.studies import StoredStudy
    from runners.base import LaunchCommand
    from tuner.hot_switch.report import HotSwitchReport
    from tuner.verdict.scores import Leaderboard

SCHEMA = 1

METRICS = (
    "output_tok_s",
    "user_tok_s",
    "accept_length",
    "accept_rate",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "tpot_p50_ms",
    "tpot_p95_ms",
    "tpot_p99_ms",
    "e2e_p50_ms",
    "e2e_p95_ms",
    "e2e_p99_ms",
    "chunk_p50_ms",
    "chunk_p95_ms",
    "tokens_per_chunk",
    "window_s",
    "requests",
    "failed_requests",
    "request_s",
    "offered_request_s",
    "goodput_request_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "client_cpu_share",
)
"""Metrics of a measurement that reports show under their own names."""


@dataclass(frozen=True, slots=True)
class StudyReport:
    """Everything that a report shows.

    Attributes:
        study: The stored study.
        leaderboard: Trials and baselines.
        launches: All launches, including lost launches.
        launches_spent: Number of launches that count against the budget.
        command: Launch command of the best trial; `None` without a best trial.
        owner_lives: Whether a tuner may be running the study now.
        fixed: Flags and variables of every launch, unless a configuration removes one.
        profile: Profile of a simulated study; `None` for a real one.
        notes: Notes to read before the results.
        cautions: Safety warnings on the best configuration.
        hot_switch: Report on hot switching; `None` if it was not requested.
        simulated_acceptance: Whether the study's servers simulate acceptance.
        explainable: Whether `tuner explain` can select a trial.
    """

    study: StoredStudy
    leaderboard: Leaderboard
    launches: tuple[Launch, ...]
    launches_spent: int
    command: LaunchCommand | None
    owner_lives: bool
    fixed: frozenset[str] = frozenset()
    profile: str | None = None
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    hot_switch: HotSwitchReport | None = None
    simulated_acceptance: bool = False
    explainable: bool = False

    @property
    def verdict(self) -> Verdict:
        """Verdict on the best trial."""
        return verdict(self.leaderboard)

    def to_dict(self) -> dict[str, Any]:
        """JSON of `sweep`, `resume` and `show`."""
        study, leaderboard = self.study, self.leaderboard
        return {
            "schema": SCHEMA,
            "study": study.name,
            "simulated": study.simulated,
            "simulated_acceptance": self.simulated_acceptance,
            "profile": self.profile,
            "sglang_version": study.sglang_version,
            "runner": study.runner,
            "planner": study.planner,
            "seed": study.seed,
            "forked_from": study.forked_from,
            "machine": self._machine(),
            "budget": {
                "launches": study.budget_launches,
                "hours": study.budget_hours,
                "launches_spent": self.launches_spent,
                "work_s": study.work_s,
                "stopped": study.stopped,
                "reason": study.stop_reason,
            },
            "hot_switch": self.hot_switch.to_dict() if self.hot_switch is not None else None,
            "baselines": self._baselines(),
            "best": self._best(),
            "verdict": {"kind": self.verdict.kind, "reason": self.verdict.reason},
            "trials": [self.trial_dict(trial) for trial in leaderboard.trials],
            "launches": [_launch_dict(launch) for launch in self.launches],
        }

    def _machine(self) -> dict[str, Any] | None:
        """Machine of the last launch that recorded one."""
        known = [launch.machine for launch in self.launches if launch.machine is not None]
        return known[-1].to_dict() if known else None

    def _baselines(self) -> dict[str, int | None]:
        names = dict.fromkeys(("none", "default", "production"))
        found = {
            name: trial.number if trial is not None else None
            for name, trial in self.leaderboard.baselines.items()
        }
        return {**names, **found}

    def _best(self) -> dict[str, Any] | None:
        best = self.leaderboard.best
        if best is None:
            return None
        gains = {
            name: self.leaderboard.gain_over(name, best)
            for name, trial in self.leaderboard.baselines.items()
            if trial is not None
        }
        return {
            "trial": best.number,
            "gain": gains,
            "command": shell(self.command) if self.command is not None else None,
            "warnings": list(self.cautions),
        }

    def trial_dict(self, trial: Trial) -> dict[str, Any]:
        """JSON of one trial."""
        first = trial.measurements[0] if trial.measurements else None
        return {
            "number": trial.number,
            "state": str(trial.state),
            "purpose": str(trial.purpose),
            "configuration": trial.configuration.to_dict(),
            "resolved": trial.resolved.to_dict() if trial.resolved is not None else None,
            "score": self.leaderboard.score(trial),
            "output_tok_s": first.output_tok_s if first is not None else None,
            "accept_length": first.accept_length if first is not None else None,
            "points": [point_dict(m) for m in trial.measurements],
            "launches": list(trial.launches),
            "judged_in": trial.judged_in,
            "failure": trial.failure.to_dict() if trial.failure is not None else None,
        }


def point_dict(measurement: Measurement) -> dict[str, Any]:
    """JSON of one measurement in `points` of a trial and in `tuner bench`."""
    sent = measurement.requests + measurement.failed_requests
    return {
        "point": measurement.point.to_dict(),
        **{name: getattr(measurement, name) for name in METRICS},
        "success_ratio": measurement.requests / sent if sent else None,
        "cached_share": (
            measurement.cached_tokens / measurement.prompt_tokens
            if measurement.prompt_tokens
            else None
        ),
        "correct_drafts_histogram": list(measurement.histogram),
        "invalid": list(measurement.invalid),
        "warnings": list(measurement.warnings),
        "workload_fingerprint": measurement.workload_fingerprint,
        "simulated": measurement.simulated,
    }


def _launch_dict(launch: Launch) -> dict[str, Any]:
    return {
        "id": launch.id,
        "state": str(launch.state),
        "trials": list(launch.trials),
        "steps": [setting.num_steps for setting in launch.intent.settings],
        "draft_tokens": [setting.num_draft_tokens for setting in launch.intent.settings],
        "ready_s": launch.ready_s,
        "seconds": launch.seconds,
        "phases": dict(launch.phases),
        "log": launch.intent.log,
        "log_digest": launch.log_digest,
        "environment": dict(launch.effective_environment),
        "imported_from": launch.imported_from,
        "failure": launch.failure.to_dict() if launch.failure is not None else None,
    }
