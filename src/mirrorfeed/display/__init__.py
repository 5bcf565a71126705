"""Display values: rows, tables, HTML and charts, terminal output, redaction of secrets."""
