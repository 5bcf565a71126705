"""Many published tables without Spark: one is created and published, the others are copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import yaml

from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.commits import commit
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed

CHANGED = 10
"""Rows that are changed in each table with unpublished changes."""


def fleet(folder: Path, count: int, *, rows: int = 100, behind: int = 0, longest: int = 2, more: str = "") -> Path:
    """Publish `count` tables (`sales.t0` and so on) and return their configuration.

    In the last `behind` tables ten rows have changed since. The longest text has `longest` characters. `more` is
    inserted before the tables."""
    source = folder / "source"
    empty = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    deltalake.write_deltalake(source, empty, configuration={"delta.enableChangeDataFeed": "true"})
    table = Table({"id": "long", "v": "string"}, ("id",), str(deltalake.DeltaTable(source).metadata().id))
    values = [(id_, f"v{id_}") for id_ in range(rows - 1)] + [(rows - 1, "v" * longest)]
    assert commit(source, f"INSERT INTO {{}} VALUES {', '.join(map(str, values))}")
    table.insert(*({"id": id_, "v": v} for id_, v in values))
    published = folder / "published"
    publish(TableFeed(table), FolderStore(str(published)), entry(str(source), "t"))
    for number in range(count):
        if number == count - behind:
            assert commit(source, f"UPDATE {{}} SET v = 'new' WHERE id < {CHANGED}")
        shutil.copytree(source, folder / f"t{number}")
        shutil.copytree(published / "t", folder / "zone" / "sales.schema" / f"t{number}")
    listed = [{"source": f"./t{number}", "target": f"sales.t{number}", "keys": ["id"]} for number in range(count)]
    config = folder / "mirrorfeed.yml"
    config.write_text(f"landing_zone: ./zone\n{more}{yaml.safe_dump({'tables': listed})}", encoding="utf-8")
    return config
