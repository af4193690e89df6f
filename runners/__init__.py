"""Starts servers, drives load and measures: `base` is the contract, `registry` finds a runner."""
