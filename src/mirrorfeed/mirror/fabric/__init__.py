"""The mirrored database in Fabric, through its REST API."""
