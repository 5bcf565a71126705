"""The mirrored database: a stand-in for the service that fills it."""
