"""The files that a table's log names, and which of them count as archived."""
