"""Asks SGLang, before any launch, what it makes of the configurations."""
