"""The permanent history of a table: its change data feed, appended to a Delta table of its own."""
