"""Time of `verify --quick` for many tables through the command: `python -m tests.bench.quick_verification`.

One table is published and replicated. Its source, its folder in the landing zone and its mirror are then copied.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner
from deltalake import write_deltalake

from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.tables import Table, TableFeed


def build(folder: Path, tables: int) -> None:
    """Create sources, landing zone, mirrors and configuration of many equal tables of ten rows, without Spark."""
    source, rows = folder / "sources/t0", Table({"id": "long", "v": "string"}, ("id",))
    rows.insert(*({"id": number, "v": f"v{number}"} for number in range(10)))
    for version in range(rows.latest + 1):
        data = pa.Table.from_pylist(rows.at(version), pa.schema([("id", pa.int64()), ("v", pa.string())]))
        write_deltalake(source, data, mode="append")
    names = [f"t{number}" for number in range(tables)]
    entries = [f"  - {{source: ./sources/{name}, target: s.{name}, keys: [id]}}\n" for name in names]
    text = f"landing_zone: landing\ntables:\n{''.join(entries)}"
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    (folder / "landing").mkdir()
    publish(TableFeed(rows), FolderStore(str(folder / "landing")), load(folder / "mirrorfeed.yml").tables[0])
    replicated = CliRunner().invoke(main, ["replicate", str(folder / "landing"), str(folder / "mirrors")])
    assert replicated.exit_code == 0, replicated.output
    for name in names[1:]:
        for parent in ("sources", "landing/s.schema", "mirrors/s"):
            shutil.copytree(folder / parent / "t0", folder / parent / name)


def measure(folder: Path) -> tuple[float, float, int]:
    """Return the seconds of one command, including its start, its seconds of CPU, and the number of equal tables."""
    command = [sys.executable, "-m", "mirrorfeed.cli", "verify", "--quick", "--json"]
    options = ["--mirror", str(folder / "mirrors"), "--config", str(folder / "mirrorfeed.yml")]
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    rows = json.loads(ran.stdout)["rows"]
    return seconds, cpu, sum(row["equal"] is True and row["source_rows"] == 10 for row in rows)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        build(Path(place), chosen.tables)
        found = [measure(Path(place)) for _ in range(chosen.times)]
        assert {equal for _, _, equal in found} == {chosen.tables}, found
        texts = ", ".join(f"{seconds:.1f} s ({cpu:.1f} s of CPU)" for seconds, cpu, _ in found)
        median = statistics.median(seconds for seconds, _, _ in found)
        print(f"{chosen.tables:,} tables, {os.cpu_count()} cores: {texts}, median {median:.1f} s")


if __name__ == "__main__":
    _main()
