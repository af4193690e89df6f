"""The plugin inside SGLang, and the tuner's interface to it."""
