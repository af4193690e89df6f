"""Makes a study file from a launch command of today, or from a few answers."""
