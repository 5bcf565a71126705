"""Encodings of delimited text."""

from __future__ import annotations

import codecs

_NO_CHARACTER_SETS = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"))
"""Codecs of Python that are not character sets, or differ between machines."""


def is_text_encoding(name: str) -> bool:
    """Whether Python can read and write text in this encoding. Excludes codecs such as `hex`."""
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)
        codecs.getincrementalencoder(name)
        return codecs.lookup(name).name.replace("-", "_") not in _NO_CHARACTER_SETS
    except (LookupError, ValueError):
        return False
