"""Publish one table: decide, stage files, record and rename them."""
