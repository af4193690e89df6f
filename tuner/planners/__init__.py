"""Planners: what to launch next. One module per strategy; `make_planner` picks by name."""

from tuner.planners.base import (
    Anchor,
    LaunchPlan,
    Observation,
    PlannedTrial,
    Planner,
    Stop,
)
from tuner.planners.choice import PLANNERS, choose_planner, make_planner
from tuner.planners.launches import LaunchBuilder

__all__ = [
    "PLANNERS",
    "Anchor",
    "LaunchBuilder",
    "LaunchPlan",
    "Observation",
    "PlannedTrial",
    "Planner",
    "Stop",
    "choose_planner",
    "make_planner",
]
