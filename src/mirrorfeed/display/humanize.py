"""Format counts, sizes and durations for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MARKERS = ("insert", "update", "upsert", "delete")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def by_marker(rows: Mapping[str, int]) -> str:
    """Return the number of rows for each marker, in words."""
    return ", ".join(counted(rows[marker], marker) for marker in MARKERS if rows.get(marker))


def a_few(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(count: int) -> str:
    scaled = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024 or unit == "GiB":
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    whole = int(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole >= length:
            return f"{whole / length:.1f} {unit}"
    return f"{whole} s"
