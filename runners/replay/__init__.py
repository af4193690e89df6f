"""A runner that answers from a table of recorded measurements."""
