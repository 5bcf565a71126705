"""The mirrored database: Fabric's REST API, a local replica for tests, and row-by-row verification."""
