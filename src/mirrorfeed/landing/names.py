"""Names of table folders, data files and log files, and limits of one mirrored database. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from mirrorfeed.landing.errors import TargetNameError

METADATA = "_metadata.json"
LOG = "_mirrorfeed"
LOG_ID = f"{LOG}/log.json"
PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
"""Subfolders of a table for files that Fabric has consumed."""

LONGEST_PART = 128
_FORBIDDEN = frozenset('/\\:*?"<>|')

_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]*)")
_PLAIN = re.compile(r"\w[\w-]*")
_ENDING = r"([0-9a-z]+)(?:\.(?:gz|zst|snappy))?"
_NUMBERED = re.compile(rf"([0-9]{{20}})\.{_ENDING}")
_STAGED = re.compile(rf"([0-9]{{20}})-[0-9a-f]+-[0-9a-z-]+\.{_ENDING}")
_BEGUN = ".begun"
_WORD = re.compile(r"[0-9a-z-]+")
_HEX = re.compile(r"[0-9a-f]+")
_SUFFIX = re.compile(_ENDING)


def split_name(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted name, without backticks. Raises `ValueError` for a misplaced backtick."""
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        assert match  # the second alternative also matches the empty string
        quoted, bare = match.groups()
        parts.append(bare if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise ValueError("has a backtick that does not enclose a whole part (write a backtick inside a part twice)")
        position += 1


def join_name(parts: Iterable[str]) -> str:
    """Join the parts of a name with dots. Parts with special characters are put in backticks."""
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in parts)


def part_fault(part: str) -> str | None:
    """Return the reason why a part of a source or target name is not valid, or None if it is valid."""
    if not part:
        return "has an empty part"
    if part != part.strip():
        return f"has a part that starts or ends with a space: {part!r}"
    if invalid := [c for c in part if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]:
        return f"has a control character: {invalid[0]!r}"
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """Name of a table in the landing zone. Without a schema, `schema` is None. Raises `TargetNameError` for invalid
    names.
    """

    schema: str | None
    table: str

    def __post_init__(self) -> None:
        for part in self._parts():
            if fault := part_fault(part) or _folder_fault(part):
                raise TargetNameError(text=join_name(self._parts()), reason=fault)

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse `table` or `schema.table`, with or without backticks. Raises `TargetNameError`."""
        try:
            parts = split_name(text)
            if len(parts) > 2:
                raise ValueError(f"has {len(parts)} parts, and the maximum is 2 (schema and table)")
            return cls(parts[0] if len(parts) == 2 else None, parts[-1])
        except (ValueError, TargetNameError) as error:
            reason = error.reason if isinstance(error, TargetNameError) else str(error)
            raise TargetNameError(text=text, reason=reason) from None

    @property
    def folder(self) -> str:
        """Path of the table's folder, relative to the landing zone."""
        return self.table if self.schema is None else f"{self.schema}.schema/{self.table}"

    def fold(self) -> tuple[str, str]:
        """Return a value for comparisons. Targets that differ only in case or the encoding of accents are equal."""
        return fold(self.schema or ""), fold(self.table)

    def __str__(self) -> str:
        return join_name(self._parts())

    def _parts(self) -> tuple[str, ...]:
        return (self.table,) if self.schema is None else (self.schema, self.table)


def fold(name: str) -> str:
    """Return a text for comparisons. Names that differ only in case or the encoding of accents have the same text."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _folder_fault(part: str) -> str | None:
    if invalid := [character for character in part if unicodedata.category(character) == "Cf"]:
        return f"has an invisible character: {invalid[0]!r}"
    if part.startswith("_"):
        return f"has a part that starts with '_', which Fabric ignores: {part!r}"
    if part in (".", ".."):
        return f"has the part {part!r}, which is another folder"
    if part.casefold().endswith(".schema"):
        return f"has a part that ends in '.schema', which marks the folder of a schema: {part!r}"
    if "." in part:
        return f"has a part with a dot, which some readers take for schema.table: {part!r}"
    if forbidden := sorted(_FORBIDDEN.intersection(part)):
        return f"has {' '.join(forbidden)} in the part {part!r}, which is not valid in file names of all systems"
    if len(part) > LONGEST_PART:
        return f"has a part of {len(part)} characters, and the maximum is {LONGEST_PART}"
    return None


def data_name(number: int, suffix: str = "parquet") -> str:
    """Return the name of a data file from its number and extension. Raises `ValueError` if one of them is invalid."""
    return f"{_digits(number)}.{_checked(_SUFFIX, suffix)}"


def data_number(name: str, extension: str | None = "parquet") -> int | None:
    """Return the number in the name of a published data file, or None for any other name.
    If `extension` is None, data files can have any extension."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) or None if match and extension in (None, match[2]) else None


def published_name(number: int, staged: str) -> str:
    """Return the final name of a staged file: `number`, followed by the extension of the staged name `staged`."""
    return data_name(number, staged.partition(".")[2])


def is_ignored(name: str) -> bool:
    """Return whether Fabric ignores a file or folder with this name."""
    return name.startswith("_")


def is_log_id(text: str) -> bool:
    """Return whether a text is a valid log id. The id is also the name of the log's folder."""
    return _WORD.fullmatch(text) is not None


def log_folder(log_id: str) -> str:
    """Return the folder of a log's records and staged files, relative to the folder of the table."""
    return f"{LOG}/{_checked(_WORD, log_id)}"


def record_name(number: int) -> str:
    return data_name(number, "json")


def record_number(name: str) -> int | None:
    """Return the number in the file name of a log record, or None for any other name."""
    return data_number(name, "json")


def staged_name(record: int, batch: str, part: str, suffix: str = "parquet") -> str:
    """Return the name of a data file in the folder of its log, before the file is published.

    `record` is the number of the log record that will publish the file, `batch` the id of the publication attempt, and
    `part` an id of the file within the attempt.
    """
    name = f"{_digits(record)}-{_checked(_HEX, batch)}-{_checked(_WORD, part)}"
    return f"{name}.{_checked(_SUFFIX, suffix)}"


def start_marker_name(batch: str) -> str:
    """Return the name of the start marker: an empty file, created before files for a log's first record are staged."""
    return f"{_checked(_HEX, batch)}{_BEGUN}"


def is_start_marker(name: str) -> bool:
    return name.endswith(_BEGUN) and _HEX.fullmatch(name.removesuffix(_BEGUN)) is not None


def staged_record_number(name: str) -> int | None:
    """Return the number of the log record in the name of a staged file, or None for any other name."""
    match = _STAGED.fullmatch(name)
    return int(match[1]) or None if match else None


def mark_number(name: str) -> int | None:
    """Return the number in the name of a verification mark, or None for any other name."""
    return data_number(name, "verified")


def is_log_file(name: str) -> bool:
    """Return whether a name belongs to a file in a log's folder: a record, staged file, start marker or mark."""
    return bool(record_number(name) or staged_record_number(name) or is_start_marker(name) or mark_number(name))


def staged_batch(name: str) -> str | None:
    """Return the batch id in the name of a staged file, or None for any other name."""
    return name.split("-")[1] if staged_record_number(name) else None


def _digits(number: int) -> str:
    if not 1 <= number < 10**20:
        raise ValueError(f"{number} is not a valid file number")
    return f"{number:020d}"


def _checked(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} is not valid in the name of a file")
    return text


WARN_TABLES = 450
TABLE_LIMITS = "Microsoft's pages name 500 and 1,000 tables as the limit of a mirrored database."

MAX_DAILY_BYTES, WARN_DAILY_BYTES = 10**12, 9 * 10**11
"""Daily limit for changed bytes of a mirrored database, and number of bytes from which mirrorfeed warns."""

SPREAD = "Distribute them over several databases: each table of the configuration can have its own `landing_zone`."


def table_limit_warning(count: int) -> str:
    """Return a warning if `count` tables are near the limit of a mirrored database, otherwise an empty string."""
    if count < WARN_TABLES:
        return ""
    return f"{count} tables. {TABLE_LIMITS} {SPREAD}"
