"""The SGLang runner: commands, facts of a running server, failures."""
