"""A server that speaks SGLang's API without a GPU; its costs come from a profile.

Start it with `python -m runners.simulated_server`.
"""
