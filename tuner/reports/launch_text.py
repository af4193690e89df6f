"""Describe what a launch did for a trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import LaunchState

if TYPE_CHECKING:
    from results.records import Launch, Trial


def describe_role(launch: Launch, trial: Trial) -> str:
    """Return the role of a launch for one of its trials, and how the launch ended.

    `"measured here"`, `"measured here, after a switch, then lost"`,
    `"reference run after a switch (not scored)"`, `"no result here, failed"`.
    """
    ended = {LaunchState.LOST: "lost", LaunchState.FAILED: "failed"}.get(launch.state)
    if trial.judged_in == launch.id:
        what = f"measured here{_how(launch, trial)}"
        return f"{what}, then {ended}" if ended is not None else what
    if _is_anchor(launch, trial):
        if ended is not None and launch.ready_s is None:
            return f"reference run, {ended} before the server was ready"
        what = "reference run after a switch (not scored)"
        return f"{what}, then {ended}" if ended is not None else what
    if launch.state is LaunchState.RUNNING:
        return "running"
    return f"no result here, {ended or launch.state}"


def _how(launch: Launch, trial: Trial) -> str:
    if not launch.intent.settings:
        return ""
    started = launch.intent.configuration.setting == trial.configuration.setting
    return ", setting of the start" if started else ", after a switch"


def _is_anchor(launch: Launch, trial: Trial) -> bool:
    """Whether the launch measured a trial again that another launch had measured."""
    judged_before = trial.judged_in is not None and trial.judged_in < launch.id
    return judged_before and bool(launch.intent.settings) and launch.trials[:1] == (trial.number,)
