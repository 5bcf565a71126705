"""What Microsoft says one open mirrored database takes, and from where on that is told."""

from __future__ import annotations

MOST_TABLES, MANY_TABLES = 500, 450
CHANGES_A_DAY, MANY_CHANGES = 10**12, 9 * 10**11
"""In bytes. Whether those of files count or those of values, and whether first loads do, is not documented."""
SPREAD = "Spread them over several databases: an entry of the configuration may have a landing_zone of its own."


def about_tables(count: int) -> str:
    """What is to be said of so many tables in one database; empty while there is nothing."""
    if count < MANY_TABLES:
        return ""
    return f"{count} tables, and a mirrored database takes {MOST_TABLES}. {SPREAD}"
