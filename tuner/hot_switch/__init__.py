"""Measuring several settings on one running server."""
