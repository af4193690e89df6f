"""Load generator: prompts, schedules, HTTP clients, measured windows and their checks."""
