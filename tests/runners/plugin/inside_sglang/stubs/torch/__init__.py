"""Stands in for torch: one rank, and no device."""

from torch import distributed

__all__ = ["distributed"]
