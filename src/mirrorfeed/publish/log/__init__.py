"""The table's log: reading, records, finishing and cleaning up."""
