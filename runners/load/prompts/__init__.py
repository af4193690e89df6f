"""Prompt sources, selection and rendering."""
