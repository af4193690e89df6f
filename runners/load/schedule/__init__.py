"""When each request is sent: closed loops, open-loop arrivals, worker processes."""
