"""The Python API: `Feed`, `ArchiveAwareTable` and the results that they return."""
