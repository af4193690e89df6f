"""The plugin inside SGLang, and the tuner's side of it."""
