"""Guarded reads and writes: the rows, or an error before anything is read."""
