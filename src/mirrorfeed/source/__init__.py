"""Source tables in Delta format: names, properties, versions, change data feed, and functions that read rows."""
