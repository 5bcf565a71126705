"""Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect."""
