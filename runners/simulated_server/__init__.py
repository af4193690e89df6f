"""Simulated SGLang server: SGLang's flags, log and API without a GPU; a profile gives the times.

Start the server with `python -m runners.simulated_server`.
"""
