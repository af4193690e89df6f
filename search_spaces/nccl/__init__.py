"""What NCCL reads of its environment, and what it makes of it; each fact with its version."""
