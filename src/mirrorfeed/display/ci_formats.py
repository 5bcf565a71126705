"""Output for CI systems: annotations of GitHub Actions, and JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree as ET

from mirrorfeed.display.redact import printable

Level = Literal["error", "warning", "notice", ""]


class Annotation(NamedTuple):
    """A row as a CI system shows it."""

    level: Level
    """Empty if the row needs no attention."""
    title: str
    message: str
    file: str = ""
    """File with the problem. Empty for the configuration file."""


_NOT_IN_XML = re.compile("[\ufffe\uffff]")
"""Characters that XML does not allow, even escaped. `printable` escapes the others."""


def to_github(annotations: Sequence[Annotation], lines: Sequence[str], file: str) -> str:
    """Return lines of text, and a line with a workflow command of GitHub Actions for each annotation.

    `file` is the file of annotations without a file.
    """
    return "\n".join([*map(printable, lines), *(_to_command(each, file) for each in annotations if each.level)])


def _to_command(annotation: Annotation, file: str) -> str:
    place, title = (_escape(text, ":,") for text in (annotation.file or file, annotation.title))
    return f"::{annotation.level} file={place},title={title}::{_escape(annotation.message)}"


def _escape(text: str, characters: str = "") -> str:
    """Escape a value of a workflow command. In a property, `characters` are escaped in addition to line breaks."""
    shown = "\n".join(map(printable, text.splitlines()))
    return re.sub(f"[%\n{characters}]", lambda match: f"%{ord(match[0]):02X}", shown)


def to_junit(annotations: Sequence[Annotation], lines: Sequence[str], suite: str) -> str:
    """Return a JUnit report of one suite with lines of text. Errors and warnings are failed tests, other rows passed.

    Without annotations, the suite has one passed test, because CI systems reject a report without tests.
    """
    cases = annotations or [Annotation("", "no findings", "")]
    counts = {"tests": f"{len(cases)}", "failures": f"{sum(map(_is_failed, cases))}", "errors": "0", "skipped": "0"}
    root = ET.Element("testsuites", counts)
    parent = ET.SubElement(root, "testsuite", {"name": suite, **counts})
    for each in cases:
        case = ET.SubElement(parent, "testcase", classname=suite, name=_clean(each.title))
        message = _clean(each.message)
        if _is_failed(each):
            ET.SubElement(case, "failure", type=each.level, message=message.partition("\n")[0]).text = message
        elif message:
            ET.SubElement(case, "system-out").text = message
    if lines:
        ET.SubElement(parent, "system-out").text = _clean("\n".join(lines))
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return data.decode("ascii")


def _is_failed(annotation: Annotation) -> bool:
    return annotation.level in ("error", "warning")


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", "\n".join(map(printable, text.splitlines())))
