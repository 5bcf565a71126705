"""The permanent history of a table: its change data feed, appended to a separate Delta table."""
