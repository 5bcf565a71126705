"""Errors of the replica."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.lint.specification import MARKER

_RECREATE = "delete the table's folder and create it again with all data"


class KeysNeeded(Terminal):
    code = "MF7001"
    what = "{address} has updates, deletes or upserts, and table {table} has no keys."
    fix = "Set keyColumns in the table's _metadata.json."


class KeyNotPublished(Terminal):
    code = "MF7002"
    what = "{address} has no column {keys:list}, which is a key of table {table}."
    fix = "Delete the file, and write a file with all key columns under the same name."


class KeysChanged(Terminal):
    code = "MF7003"
    what = "The keyColumns of table {table} changed from {before:list} to {now:list}."
    fix = f"Keys never change after they are set. Restore them, or {_RECREATE}."


class FolderReplaced(Transient):
    code = "MF7004"
    what = "{address} was deleted or recreated while table {table} was read."
    fix = "The next pass reads the current folder."


class BadMetadata(Terminal):
    code = "MF7005"
    what = "Cannot use {address}: {reason}"
    fix = "Correct the file. The next pass continues the table."


class BrokenFile(Terminal):
    code = "MF7006"
    what = "Cannot read {address}: {reason:phrase}."
    fix = "Delete the file, and write a complete file under the same name."


class UnknownExtension(Terminal):
    code = "MF7007"
    what = "{address} ends neither in .parquet nor in .{extension}."
    fix = "Rename the file, or set FileFormat and FileExtension in the table's _metadata.json."


class ColumnTwice(Terminal):
    code = "MF7008"
    what = "{address} has the columns {columns:list} more than once."
    fix = "Delete the file, and write a file with distinct columns under the same name."


class MarkerMisplaced(Terminal):
    code = "MF7009"
    what = f"{MARKER} is column {{place}} of {{columns}} in {{address}}."
    fix = "Delete the file, and write a file under the same name in which it is the last column."


class UnknownMarker(Terminal):
    code = "MF7010"
    what = f"{{where}} has {MARKER} {{found}}."
    fix = "Delete the file, and write a file under the same name with int32 markers 0, 1, 2 or 4."


class NumberTwice(Terminal):
    code = "MF7011"
    what = "Two files of table {table} have the same number: {one} and {other}."
    fix = "Delete the wrong file. A number is used once."


class SamePlace(Terminal):
    code = "MF7012"
    what = "Table {table} and another table folder of the same name have the same mirror, {place}."
    fix = "Keep the table in one schema folder only."


class MirrorUnavailable(Transient):
    code = "MF7013"
    what = "Cannot read or write the mirror {place}: {reason:phrase}."
    fix = "Nothing of the file was applied. The next pass tries again."


class NotOurs(Terminal):
    code = "MF7014"
    what = "{place} is a Delta table that no replica created. It was not changed."
    fix = "Use a separate target folder for the replica."


class NullNotAllowed(Terminal):
    code = "MF7015"
    what = "{address} has rows with NULL in {column}, which is not nullable."
    fix = f"Publish values, or {_RECREATE}."


class UnsupportedType(Terminal):
    code = "MF7016"
    what = "Column {column} of {address} has the type {kind}, which a mirrored table does not support."
    fix = "Publish complex values as JSON text, and other values with a simple type."


class TypeChanged(Terminal):
    code = "MF7017"
    what = "Table {table} is stopped because {address} changes the type of {columns}."
    fix = "Delete the table's folder, and create it again with all data."
    changed: Mapping[str, tuple[str, str]]
    """Old and new type of each column."""

    @property
    def columns(self) -> str:
        return ", ".join(f"{name} from {old} to {new}" for name, (old, new) in self.changed.items())


class ColumnLeftOut(Terminal):
    code = "MF7018"
    what = "{address} has no column {columns:list}, which is not nullable in table {table}."
    fix = f"Keep publishing the column, or {_RECREATE}."


class NameOnlyDiffersInCase(Terminal):
    code = "MF7019"
    what = "{address} has the column {new}, and table {table} has {known}. The names differ in case only."
    fix = "Publish the column under one name. To rename it, delete the folder and create it again with all data."


class YearNotHeld(Terminal):
    code = "MF7020"
    what = "{address} has dates in {column} outside the years 1 to 9999."
    fix = "The replica cannot read such dates. Publish them as text, or correct them in the source."
