"""Scheduler, cost model and speculation of the simulated server."""
