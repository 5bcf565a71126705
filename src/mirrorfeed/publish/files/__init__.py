"""Writes landing rows to files, and uploads them under staged names."""
