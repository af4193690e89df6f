"""Injected faults: crashes and misbehaviour."""
