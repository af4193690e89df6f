"""Known failures: rules that recognize them, with advice."""
