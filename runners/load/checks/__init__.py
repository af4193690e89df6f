"""Checks that decide whether a window is valid."""
