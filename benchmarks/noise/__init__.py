"""How much of a difference between two measurements is noise: `python -m benchmarks.noise`."""
