"""Measure the noise of measurements: `python -m benchmarks.noise`."""
