"""A file as the Delta log describes it: path, size, age, partition and deletion vector. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from mirrorfeed.display.humanize import counted, size
from mirrorfeed.landing.strict_json import Count

ELSEWHERE = r"^[A-Za-z][A-Za-z0-9+.-]*:/"
"""Start of an absolute path in the log, as in a clone whose files are in the folder of its original."""
_SCHEME = re.compile(ELSEWHERE)
_BASE85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file in the log. `uri` is decoded, as in the files that Spark reads."""

    uri: str
    size: Count | None = None
    rows: int | None = None
    created: datetime | None = None
    partition: Mapping[str, str | None] | None = None
    vector: str | None = None
    """The file of its deletion vector, if it is stored outside the log."""
    folder: str | None = field(default=None, repr=False, compare=False)
    """The folder of the table in which it is, if known: a clone has files in the folder of its original."""

    @property
    def uris(self) -> tuple[str, ...]:
        """The file, and the file of its deletion vector."""
        return (self.uri, self.vector) if self.vector else (self.uri,)


def total(files: Sequence[LogFile], noun: str = "file") -> str:
    """The number of files, and their size if it is known."""
    known = [file.size for file in files if file.size is not None]
    bytes_ = f" ({size(sum(known))})" if len(known) == len(files) else ""
    return f"{counted(len(files), noun)}{bytes_}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def file_of(location: str, row: Mapping[str, Any], names: Mapping[str, str] | None = None) -> LogFile:
    """A file from its log entry. `names` maps the column names of the log to those of the table."""
    return LogFile(
        uri=uri_of(location, row["path"]),
        size=row["size"],
        rows=_live_rows(row),
        created=_EPOCH + timedelta(milliseconds=row["created"]) if row["created"] is not None else None,
        partition={(names or {}).get(name, name): value for name, value in row["partition"] or ()},
        vector=vector_file(location, row["vector"]),
    )


def column_names(schema: str) -> dict[str, str]:
    """Maps the column names of the log, which differ with column mapping, to those of the table."""
    fields = json.loads(schema)["fields"]
    return {str(f["metadata"].get("delta.columnMapping.physicalName", f["name"])): str(f["name"]) for f in fields}


def _live_rows(row: Mapping[str, Any]) -> int | None:
    written: int | None = row["rows"]
    gone: int | None = row["vector"]["cardinality"] if row["vector"] else 0
    return None if written is None or gone is None else written - gone


def uri_of(location: str, path: str) -> str:
    """A path in the log is encoded, and relative to the table unless it has a scheme."""
    return plain(unquote(path) if _SCHEME.match(path) else f"{location.rstrip('/')}/{unquote(path)}")


def no_pattern(path: str) -> str:
    """Escapes a path, because Spark reads paths as patterns and a folder may be called `{2026}` or `[old]`."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def plain(uri: str) -> str:
    """Normalizes local URIs, which Java writes with one slash or three."""
    return re.sub(r"^file:///*", "file:/", uri)


def vector_file(location: str, vector: Mapping[str, Any] | None) -> str | None:
    """The file of a deletion vector. Vectors of kind `i` are stored in the log itself."""
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] == "p":
        return plain(unquote(vector["pathOrInlineDv"]))
    text = vector["pathOrInlineDv"]
    prefix, name = text[:-20], uuid.UUID(bytes=_base85(text[-20:]))
    return plain("/".join(filter(None, (location.rstrip("/"), prefix, f"deletion_vector_{name}.bin"))))


def _base85(text: str) -> bytes:
    """With the alphabet of ZeroMQ, which Python's own module does not support."""
    found = b""
    for start in range(0, len(text), 5):
        value = 0
        for letter in text[start : start + 5]:
            value = value * 85 + _BASE85.index(letter)
        found += value.to_bytes(4, "big")
    return found
