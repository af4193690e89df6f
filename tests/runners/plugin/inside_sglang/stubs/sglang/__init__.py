"""Stands in for SGLang: the shapes that the plugin touches, of the version that a test asks for.

Written for the tests; signatures are those of the real sources, which `test_signatures.py` holds
the plugin's own table against where the real SGLang is installed.
"""

import os

__version__ = os.environ.get("FAKE_SGLANG", "0.5.23")
