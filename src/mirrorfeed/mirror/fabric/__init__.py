"""Manage the mirrored database with Fabric's REST API."""
