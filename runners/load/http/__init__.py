"""HTTP clients of the endpoints that stream tokens."""
