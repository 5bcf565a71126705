"""Number of rows from which output counts what needs no attention, and does not list it."""

MANY = 20
"""If more rows than this need no attention, a text with their number replaces them."""
