"""What every section of a study file has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A section: frozen, and without keys that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
