"""Create a study file from a launch command, or from answers to questions."""
