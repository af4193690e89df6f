"""Read launch commands in the forms that people use: text in, values out, no I/O."""

from search_spaces.launch_commands.reader import (
    Container,
    LaunchText,
    UnreadableCommandError,
    read_launch_text,
)

__all__ = ["Container", "LaunchText", "UnreadableCommandError", "read_launch_text"]
