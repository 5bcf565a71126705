"""For notebooks: what their deployment says, and results as frames for `display`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed import config
from mirrorfeed.build import this_build
from mirrorfeed.config import Config, Table
from mirrorfeed.errors import Terminal
from mirrorfeed.feed.source import Source, quote
from mirrorfeed.verify.place import folder_of

DEPLOYED = "deployed/deployment.json"
"""Beside the notebooks; written when the bundle is built."""
_TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string", datetime: "timestamp"}


@dataclass(frozen=True)
class Setting:
    """What a notebook works with: the fields that were filled in, and for the others what the deployment says."""

    config: Config
    archive_tables: tuple[str, ...]
    _table: str
    _mirror: str

    @property
    def table(self) -> Table:
        """The one that is named, or else the first of the configuration."""
        return self.config.select([self._table] if self._table else [])[0]

    @property
    def mirror(self) -> str:
        """The folder of the mirrored tables."""
        return folder_of(self.config, self._mirror)

    @property
    def archived(self) -> Source:
        """The table with an archive that is named, or else the first of the deployment's."""
        if not (names := [name for name in (self._table, *self.archive_tables) if name]):
            raise NoArchiveNamed()
        return Source.parse(names[0])


def setting(dbutils: Any) -> Setting:
    """Says in one line which configuration, landing zone and build the notebook uses, and gives all that it needs."""

    def field(name: str) -> str:
        try:
            return str(dbutils.widgets.get(name))
        except Exception:  # a notebook has the fields that it needs; the class differs by runtime
            return ""

    folder = folder_of_notebook(dbutils)
    facts = told(folder)
    mirror, archive_tables = facts.pop("mirror", ""), tuple(facts.pop("archive_tables", ()))
    given = {name: field(name) or value for name, value in facts.items()}
    if zone := field("landing_zone"):
        given["landing_zone"] = zone
    loaded = config.load(os.path.normpath(folder / field("config")), **given)
    print(f"mirrorfeed {this_build()}, {loaded.path}, landing zone {loaded.landing_zone}")
    return Setting(loaded, archive_tables, field("table"), field("mirror") or mirror)


def folder_of_notebook(dbutils: Any) -> Path:
    """Where the notebook lies; the working directory may be any."""
    context = dbutils.notebook.entry_point.getDbutils().notebook().getContext()
    path = Path(context.notebookPath().get())
    below = Path("/Workspace") / path.relative_to("/")
    return below.parent if below.parent.is_dir() else path.parent


def told(folder: Path) -> dict[str, Any]:
    """What the deployment says; nothing where the notebook is not deployed."""
    try:
        found: dict[str, Any] = json.loads((folder / DEPLOYED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


class NoArchiveNamed(Terminal):
    """The notebook about archives was started without saying which table it is about."""

    code = "MF1304"

    def what(self) -> str:
        return "No table with an archive is named, neither in the field `table` nor in the variable archive_tables."

    def next(self) -> str:
        return "Name one. A table gets an archive by `mirrorfeed archive set`."


def frame(spark: SparkSession, kind: type, rows: Iterable[Any]) -> DataFrame:
    """Rows of a dataclass with its fields as columns; what is no plain value is shown as its text."""
    hints = get_type_hints(kind)
    types = {field.name: _TYPES.get(_plain(hints[field.name])) for field in fields(kind)}
    schema = ", ".join(f"{quote(name)} {type_ or 'string'}" for name, type_ in types.items())

    def value(row: Any, name: str) -> Any:
        found = getattr(row, name)
        return found if found is None or types[name] else str(found)

    return spark.createDataFrame([tuple(value(row, name) for name in types) for row in rows], schema)


def _plain(hint: Any) -> Any:
    """The type of a field that may be missing."""
    there = [each for each in get_args(hint) if each is not NoneType]
    return there[0] if len(there) == 1 else hint
