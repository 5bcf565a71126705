"""Delta tables as sources: names, properties, versions, change data feed, and functions that read rows."""
