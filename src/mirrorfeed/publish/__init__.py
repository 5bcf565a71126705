"""From the feed into the landing zone: stage files, record them, rename them."""
