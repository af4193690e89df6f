"""Search strategies, one module each; `registry` finds them by name."""
