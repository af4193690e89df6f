"""A simulated machine that starts at once, for tests whose subject is not the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from runners.simulated_server.engine.profile import PROFILES

if TYPE_CHECKING:
    from pathlib import Path

QUICK_S = 0.4
"""Simulated seconds of every start-up phase."""


def write_quick_profile(folder: Path, name: str = "kimi", **changes: object) -> str:
    """Write a shipped profile with a quick start into `folder`; return its path.

    Args:
        folder: Folder of the study file.
        name: Shipped profile.
        changes: Other keys of the profile to replace.
    """
    profile = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())
    profile["startup"] = dict.fromkeys(profile["startup"], QUICK_S)
    path = folder / f"{name}-quick.yaml"
    path.write_text(yaml.safe_dump(profile | changes))
    return str(path)
