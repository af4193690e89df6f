"""Stands in for torch: events of a GPU whose time a test sets."""

from torch import cuda, distributed

__all__ = ["cuda", "distributed"]
