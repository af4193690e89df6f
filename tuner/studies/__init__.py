"""Stored studies: creating, identifying and forking them."""
