"""The tuning loop: choose a launch, run it, judge it, store it."""
