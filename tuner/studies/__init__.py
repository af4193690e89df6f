"""Stored studies: create, compare and fork them."""
