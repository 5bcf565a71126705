"""Watches tables on their way, and tells trouble to those who want to know: once, and once more when it is over."""
