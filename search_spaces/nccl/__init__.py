"""NCCL and all-reduce: variables, values, effects."""
