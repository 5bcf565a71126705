"""Compare a version of a source with its mirror, row by row. Shares no code with publishing."""
