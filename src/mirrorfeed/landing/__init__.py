"""The landing zone's format, pure: neither Spark nor storage nor network is known here."""
