"""Decompress delimited text, split the text into rows of values, and define the lint rules for text files (MF6xx).

If the escape character and the quote are different characters:

- In a quoted value, the escape character escapes the quote and itself.
- In a value without quotes, the escape character escapes separators, line breaks, the quote and itself.
- Before any other character, the escape character is an ordinary character.

If the quote is also the escape character:

- In a quoted value, each quote is written twice.
- In a value without quotes, the quote is an ordinary character.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from mirrorfeed.lint.specification import CODEC, TRUNCATED, Dialect, LintRule, error

MAX_ROW_LENGTH = 64 << 20
"""Maximum length of a row, in characters."""
_CHUNK = 1 << 20
"""Bytes to read at once."""
_STREAMS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAX_SNAPPY_RATIO = 64
"""Upper bound of the ratio of decompressed to compressed bytes. No Snappy instruction yields more per byte."""
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_REFUSED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip"}


_PROBLEM = "Row {row:,}: {detail}."
ENCODING = error(
    "MF601",
    _PROBLEM,
    "Write the file in the Encoding that _metadata.json sets, or correct the setting.",
    "A text file is not in the encoding that `_metadata.json` sets.",
)
WIDTH = error(
    "MF602",
    _PROBLEM,
    "Give every row one value per column. Check ColumnSeparator, and quote values that contain the separator.",
    "The number of values in a row of a text file differs from the number of columns.",
)
QUOTE = error(
    "MF603",
    _PROBLEM,
    "Close each quote, and escape quotes inside values with EscapeCharacter. If quotes are doubled, set EscapeCharacter"
    " to the quote.",
    "A quote in a text file is not closed, or is closed before the end of the value.",
)
LINE_BREAK = error(
    "MF605",
    _PROBLEM,
    "End rows with RowSeparator (default \\r\\n), and quote values with other line breaks."
    " A checkout of Git or an editor may have changed the line endings, so copy the files unchanged.",
    "Rows of a text file do not end in the RowSeparator of `_metadata.json`.",
)
VALUE = error(
    "MF606",
    _PROBLEM,
    "Write values in the format of their DataType, and NULL as NullValue.",
    "A value in a text file does not have the declared type.",
)
NULL = error(
    "MF607",
    _PROBLEM,
    "Write a value in every row. A column other than a key can be declared as nullable from the start.",
    "A value in a text file is NULL, and its column is declared as not nullable.",
)


class Unsplittable(Exception):
    """Error for a row that cannot be split into values. `row` is the number of the row. Row 1 is the header."""

    def __init__(self, rule: LintRule, row: int, detail: str) -> None:
        super().__init__(detail)
        self.rule, self.row, self.detail = rule, row, detail


class UnreadableText(OSError):
    def __init__(self, rule: LintRule, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def decompress(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Return the decompressed content of a text file in pieces. The first bytes of the file show the compression.

    A file in Hadoop's Snappy format has no such bytes, so its name must end in `.snappy`. Raises `UnreadableText`
    for a truncated file or an unsupported compression, and its base class `OSError` for a damaged file.
    """
    head = file.read(len(_FRAMED))
    file.seek(0)
    for magic, codec in _REFUSED.items():
        if head.startswith(magic):
            raise UnreadableText(CODEC, codec)
    for magic, codec in _STREAMS.items():
        if head.startswith(magic):
            return _stream(file, codec)
    if head == _FRAMED:
        return _framed(file)
    return _blocks(file) if name.endswith(".snappy") else iter(lambda: file.read(_CHUNK), b"")


def _stream(file: BinaryIO, codec: str) -> Iterator[bytes]:
    import pyarrow as pa  # imported late: slow to import, and needed only for compressed text

    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    try:
        while piece := stream.read(_CHUNK):
            yield piece
    except (pa.ArrowException, OSError) as error:
        if "runcated" in str(error):
            raise UnreadableText(TRUNCATED, f"its {codec} stream does not end ({error})") from error
        raise OSError(str(error)) from error


def _framed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of a file in Snappy's framing format."""
    file.seek(len(_FRAMED))
    while head := file.read(4):
        body = _exactly(file, int.from_bytes(head[1:4], "little"))
        if head[0] == 0x00:
            yield _snappy(body[4:])  # data starts with a checksum of 4 bytes
        elif head[0] == 0x01:
            yield body[4:]
        elif head[0] < 0x80:
            raise OSError(f"a Snappy frame has the type {head[0]}")


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of a file in Hadoop's Snappy format."""
    # A block has its decompressed length, and parts that each start with their compressed length.
    while head := file.read(4):
        remaining = int.from_bytes(head, "big")
        while remaining > 0:
            part = _snappy(_exactly(file, int.from_bytes(_exactly(file, 4), "big")))
            remaining -= len(part)
            yield part


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise UnreadableText(TRUNCATED, "its last Snappy block does not end")
    return data


def _snappy(data: bytes) -> bytes:
    import pyarrow as pa

    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _MAX_SNAPPY_RATIO * len(data):
        raise OSError("a Snappy block declares more bytes than it can hold")
    try:
        return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def decode(data: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Yield decoded text without a byte order mark. Raises `UnicodeError` at the first invalid byte."""
    texts = codecs.iterdecode(data, encoding)
    try:
        yield from filter(None, chain([next(texts, "").removeprefix("\ufeff")], texts))
    except UnicodeDecodeError as error:  # the caller splits the text before the error, to find the row
        yield error.object[: error.start].decode(encoding, "ignore")
        raise


def split(pieces: Iterable[str], dialect: Dialect, *, allow_line_breaks: bool = False) -> Iterator[list[str | None]]:
    """Yield the values of each row, with None for NULL. The first row is the header. Its values are never None.

    Raises `Unsplittable` at a row that cannot be split, or at an unescaped line break outside quotes that is not the
    row separator. If `allow_line_breaks` is set or the dialect has no quote character, accepts these line breaks in all
    rows except the header."""
    splitter = _Splitter(dialect, None, allow_line_breaks=False)
    text, at, number = "", 0, 1
    source = iter(pieces)
    ended = False
    while not ended or at < len(text):
        row, end, is_complete = splitter.row(text, at, ended)
        if is_complete:
            yield row
            if number == 1:
                allow_line_breaks = allow_line_breaks or not dialect.quote
                splitter = _Splitter(dialect, dialect.null, allow_line_breaks=allow_line_breaks)
            at, number = end, number + 1
        elif fault := splitter.fault(text, at, end, number, ended):
            raise fault
        else:
            # The row is read again from its start, so its text at least doubles each time.
            more = _read_more(source, len(text) - at)
            ended, text, at = not more, text[at:] + more, 0


def _read_more(source: Iterator[str], count: int) -> str:
    """Join pieces of `source` until the text has more than `count` characters or `source` ends. Return the text."""
    parts: list[str] = []
    length = 0
    while length <= count and (piece := next(source, "")):
        parts.append(piece)
        length += len(piece)
    return "".join(parts)


class _Splitter:
    def __init__(self, dialect: Dialect, null: str | None, *, allow_line_breaks: bool) -> None:
        self._dialect, self._null = dialect, null
        row, column, quote, escape = map(re.escape, (dialect.row, dialect.column, dialect.quote, dialect.escape))
        inside = rf"[^{quote}{escape}]++|{escape}[\s\S]" if escape else rf"[^{quote}]++"
        if escape == quote:  # the escape character is an ordinary character outside quotes
            inside, escape = rf"[^{quote}]++|{quote}{quote}", ""
        escaped = rf"|{escape}(?:{row}|[\s\S])?+" if escape else ""
        breaks = rf"|(?!{row})[\r\n]" if allow_line_breaks else ""
        quoted = rf"{quote}((?:{inside})*+)" if quote else "(?!)()"
        plain = rf"(?!{quote})" if quote else ""
        plain += rf"((?:[^{column}{escape}\r\n]++{escaped}{breaks})*+)"
        self._unfinished_value = re.compile(rf"{quoted}({quote}|)|{plain}")
        self._value, self._last_value = (
            re.compile(rf"(?:{quoted}{quote}|{plain})(?:({column})|{row}{end})") for end in ("", r"|\Z")
        )
        self._unquote = re.compile(rf"{escape or quote}([{quote}{escape}])") if dialect.escape and quote else None
        self._unescape = re.compile(rf"{escape}([{column}{quote}{escape}\r\n])") if escape else None

    def row(self, text: str, at: int, ended: bool) -> tuple[list[str | None], int, bool]:
        """Read the row that starts at index `at` of `text`. Return its values, the index after the row, and True.

        If no separator follows a value, returns the values before this value, the index where this value starts, and
        False. `ended` is True if `text` is the end of the file: then the last row needs no row separator.
        """
        match_value, escape = (self._last_value if ended else self._value).match, self._dialect.escape
        values: list[str | None] = []
        while match := match_value(text, at):
            quoted, plain, column = match.groups()
            if quoted is not None:
                values.append(self._unquote.sub(r"\1", quoted) if self._unquote and escape in quoted else quoted)
            elif plain == self._null:  # before escapes are removed, because some publishers write NULL as \N
                values.append(None)
            else:
                values.append(self._unescape.sub(r"\1", plain) if self._unescape and escape in plain else plain)
            at = match.end()
            if column is None:
                return values, at, True
        return values, at, False

    def fault(self, text: str, row: int, at: int, number: int, ended: bool) -> Unsplittable | None:
        """Return an error if a row cannot be split, or None if the caller must read more text of the file.

        Call this method if no separator follows the value that starts at index `at` of `text`. The row starts at index
        `row`. The error shows `number` as the row number. `ended` is True if `text` is the end of the file.
        """
        if len(text) - row > MAX_ROW_LENGTH:
            return Unsplittable(QUOTE, number, f"it has more than {MAX_ROW_LENGTH:,} characters")
        match = self._unfinished_value.match(text, at)
        assert match  # also matches the empty string
        quoted, closed = match[1], match[2]
        if quoted is not None and not closed:
            detail = f"it ends inside a quoted value, which begins with {_shown(text[at : at + 20])}"
            return Unsplittable(QUOTE, number, detail) if ended else None
        rest = text[match.end() : match.end() + 10]
        if not ended and len(rest) < 2:
            return None
        if quoted is not None and rest[0] not in "\r\n":
            detail = f"it has {_shown(rest)} after the value {_shown(quoted)}, and no separator"
            return Unsplittable(QUOTE, number, detail)
        line_break = "\r\n" if rest.startswith("\r\n") else rest[0]
        where = f"ends in {line_break!r}" if number == 1 else f"has the line break {line_break!r} outside of quotes"
        return Unsplittable(LINE_BREAK, number, f"it {where}, and RowSeparator is {self._dialect.row!r}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")
