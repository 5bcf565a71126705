"""Read the settings of a table folder, and refuse a `_metadata.json` whose meaning is not clear."""

from __future__ import annotations

from mirrorfeed.errors import Terminal
from mirrorfeed.lint.metadata_file import Settings, read_metadata


def parse_settings(content: bytes, address: str) -> Settings:
    """Return the settings in a `_metadata.json`; or raise `BadMetadata`. Unknown properties are ignored."""
    settings, deviations = read_metadata(content)
    if unclear := next((deviation for deviation in deviations if not deviation.is_clear), None):
        raise BadMetadata(address, f"{unclear.what} {unclear.rule.next}")
    return settings


class BadMetadata(Terminal):
    """The table's `_metadata.json` cannot be used."""

    code = "MF7005"

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"Cannot use {self.address}: {self.reason}"

    def next(self) -> str:
        return "Correct the file; the table goes on with the next pass."
