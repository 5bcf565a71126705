"""Encodings that delimited text can have."""

from __future__ import annotations

import codecs

_NO_CHARACTER_SETS = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"))
"""Codecs of Python that turn text into bytes, but for host names, for source code, or differently on each machine."""


def is_text_encoding(name: str) -> bool:
    """Whether Python can read and write text in the encoding. It has codecs such as `hex` that are none."""
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)
        codecs.getincrementalencoder(name)
        return codecs.lookup(name).name.replace("-", "_") not in _NO_CHARACTER_SETS
    except (LookupError, ValueError):
        return False
