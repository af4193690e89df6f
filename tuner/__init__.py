"""Decides: command line, sweep loop, planners, scores, verdict, reports."""
