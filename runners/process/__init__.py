"""Server processes: start, supervise, stop, clean up."""
