"""Lifecycle rules of Azure and S3: checks them for a table, and writes them."""
