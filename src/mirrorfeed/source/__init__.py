"""Delta tables as sources: identity, versions, change data feed, ranges, reading."""
