"""HTTP endpoints of the simulated server."""
