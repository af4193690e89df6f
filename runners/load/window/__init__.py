"""A measured window: records of requests, evidence, the resulting measurement."""
