"""Reading and checking study files."""
