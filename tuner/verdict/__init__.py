"""Scores, noise and the verdict."""
