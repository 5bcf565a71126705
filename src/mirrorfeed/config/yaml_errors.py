"""Explain why a configuration file cannot be read as YAML."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import yaml


def explain(error: Exception, path: str) -> tuple[int | None, str]:
    """Return the line of an error in reading the file `path`, or None if it has no line, and the reason in words."""
    match error:
        case OSError():
            return None, error.strerror or str(error)
        case UnicodeDecodeError():
            return error.object[: error.start].count(b"\n") + 1, "it is not UTF-8 text"
        case yaml.MarkedYAMLError():
            mark = error.problem_mark
            reason = error.problem or error.context or "it is not YAML"
            if reason.startswith("found undefined"):  # an alias or a tag, whose text may be a secret
                reason = f"{reason.split(chr(39))[0].strip()}: put values that begin with * or ! in quotes"
            elif mark and mark.buffer is not None and mark.buffer[mark.pointer - 1 : mark.pointer + 1] == "${":
                reason = "put a reference such as ${name} in quotes inside [] and {}"
            return mark.line + 1 if mark else None, reason
        case yaml.reader.ReaderError():
            text = Path(path).read_text(encoding="utf-8-sig")
            line = text[: error.position].count("\n") + 1
            return line, f"the character {chr(error.character)!r} is not allowed in YAML"
    return _line_of_escape(path), "it has an escape that is not a character"


def _line_of_escape(path: str) -> int:
    """Return the line at which the scanner stops because `chr` rejects the number of an escape."""
    loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8-sig"))
    with suppress(ValueError, OverflowError):
        loader.get_single_node()
    return int(loader.line) + 1
