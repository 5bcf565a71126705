"""Limits of one mirrored database, as Microsoft documents them, and when to warn about them."""

from __future__ import annotations

MAX_TABLES, WARN_TABLES = 500, 450
MAX_DAILY_BYTES, WARN_DAILY_BYTES = 10**12, 9 * 10**11
"""Bytes of changes per day. Microsoft does not say whether files or values count, and whether first loads do."""
SPREAD = "Distribute them over several databases: each table of the configuration can have its own `landing_zone`."


def table_limit_warning(count: int) -> str:
    """A warning if a database has too many tables, or an empty string."""
    if count < WARN_TABLES:
        return ""
    return f"{count} tables, and a mirrored database supports {MAX_TABLES}. {SPREAD}"
