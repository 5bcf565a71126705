"""Where the process runs, and the servers that it calls."""
