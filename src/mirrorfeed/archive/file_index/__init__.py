"""The files in the log of a table, and which of them count as archived."""
