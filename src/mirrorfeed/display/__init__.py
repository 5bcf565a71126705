"""Output of results: rows, tables, HTML and charts, terminal output, progress, redaction of secrets."""
