"""Implementations of the commands. `tuner.cli` has their options."""
