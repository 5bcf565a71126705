"""Write a new configuration from found tables or for one table, for `mirrorfeed init` with `--from` or `--source`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent, wrap

import yaml

from mirrorfeed.config import SCHEMA
from mirrorfeed.landing.names import Target, join_name
from mirrorfeed.source.identifier import URI, Source

_WIDTH = 120
_HEADING = f"""# yaml-language-server: $schema={SCHEMA}
# `mirrorfeed init` without options writes a file with all options.

# Folder, or an open mirrored database in Fabric: onelake://<workspace id>/<mirrored database id>
"""
_OPEN = """
  # The following tables are not published. To publish one, do what its comment says and remove the # of its entry. Keys
  # cannot be changed after a table is published. Sources without a change data feed need `changes: compare`, keys and a
  # ledger.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a table in a new configuration."""

    source: str
    target: str | None
    """Target. None if the table cannot have an entry, so that only a comment names it."""
    keys: Sequence[str] | None
    decision: str = ""
    """What a person must decide first. Then the entry is only a comment."""
    columns: Sequence[str] = ()
    """Columns to choose the keys from. Only in the comment of a decision."""


def write_new_config(file: str, landing_zone: str, entries: Sequence[Entry]) -> str:
    """Return the text of a configuration with these entries for the path `file`.

    Entries that need a decision are comments at the end, so that no table is published before the decision.
    """
    ready = [each for each in entries if not each.decision]
    waiting = [each for each in entries if each.decision]
    lines = [f"{_HEADING}landing_zone: {_scalar(landing_zone)}\n\ntables:\n"]
    lines += [indent(_entry_text(each, file), "  ") for each in ready]
    if waiting:
        lines += [_OPEN, *(indent(_comment_text(each, file), "  # ") for each in waiting)]
    return "".join(lines)


def write_config_of(file: str, source: str, keys: Sequence[str] | None) -> str:
    """Return the text of a configuration that publishes one table, a catalog name or a folder, to the folder landing.

    The target has the last two parts of a catalog name, or the name of the folder. Raises `SourceNameError` or
    `TargetNameError` for a name that cannot be used.
    """
    is_folder = Path(source).is_dir() and "/" not in source
    table = Source.parse_argument(f"./{source}" if is_folder else source)
    target = join_name(table.parts[-2:] if table.path is None else [Path(table.path).name])
    Target.parse(target)
    return write_new_config(file, "./landing", [Entry(str(table), target, keys)])


def _entry_text(entry: Entry, file: str) -> str:
    fields = {"source": _relative(entry.source, file), "target": entry.target}
    return _dump([fields if entry.keys is None else {**fields, "keys": [*entry.keys]}])


def _comment_text(entry: Entry, file: str) -> str:
    paragraphs = [f"{_relative(entry.source, file)}: {entry.decision.rstrip('.')}."]
    if entry.columns and entry.keys is None:
        paragraphs.append(f"Columns: {', '.join(entry.columns)}")
    lines = [line for each in paragraphs for line in wrap(each, _WIDTH - 4, break_long_words=False)]
    text = "".join(f"{line}\n" for line in ("", *lines))
    if entry.target is None:
        return text
    return text + _entry_text(Entry(entry.source, entry.target, entry.keys or ()), file)


def _scalar(value: str) -> str:
    return _dump([value]).strip()[1:-1]


def _dump(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=10_000, allow_unicode=True)
    return text


def _relative(source: str, file: str) -> str:
    """Return a source as it is written in `file`: a folder below the folder of the file as a relative path."""
    folder = Path(file).resolve().parent
    if URI.match(source) or not source.startswith("/") or not Path(source).is_relative_to(folder):
        return source
    return f"./{Path(source).relative_to(folder).as_posix()}"
