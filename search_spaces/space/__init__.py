"""The search space: parameters, conditions, legal points."""
