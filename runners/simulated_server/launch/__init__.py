"""Flags, start-up and log of the simulated server."""
