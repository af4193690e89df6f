"""Checks before the first launch."""
