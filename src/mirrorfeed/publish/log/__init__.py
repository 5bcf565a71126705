"""The table's log: read, add records, finish publications, clean up."""
