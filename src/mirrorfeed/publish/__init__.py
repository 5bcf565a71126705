"""Publishes one table: decides, stages files, records them, renames them."""
