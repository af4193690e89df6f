"""Runner that replays recorded measurements."""
