"""Command-line interface: options and help of every command."""
