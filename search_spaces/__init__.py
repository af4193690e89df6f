"""Study files, search spaces, rules and launch commands."""
