"""Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect."""

FILE = "mirrorfeed.yml"
"""The configuration, where no other is named."""
