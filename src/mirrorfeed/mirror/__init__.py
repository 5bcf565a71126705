"""The mirrored database: Fabric's REST API, a replica for tests, and row-by-row verification."""
