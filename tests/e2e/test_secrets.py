"""No output, Spark log, Spark plan or file of a run contains the secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.onelake import SECRET, OneLake
from fixtures.onelake.faults import Fault, How
from tests.conftest import INTERPRETED

PROGRAM = """
import json
import sys
from contextlib import suppress
from pathlib import Path

import deltalake
import pyarrow as pa

from mirrorfeed import cli
from mirrorfeed.runtime.spark_session import get_session

folder = Path(sys.argv[1])
spark = get_session(options=json.loads(sys.argv[2]) | {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": (folder / "events").as_uri(),
    "spark.eventLog.compress": "false",
})
columns = pa.schema({"id": pa.int32(), "v": pa.string()})
feed = {"delta.enableChangeDataFeed": "true"}
orders = deltalake.DeltaTable.create(folder / "orders", columns, configuration=feed)
for number in range(2):
    deltalake.write_deltalake(orders, pa.table([[number], ["large" * 1000]], columns), mode="append")
    with suppress(SystemExit):
        cli.main(["publish", "--config", str(folder / "mirrorfeed.yml")])
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_no_output_log_or_file_of_a_run_contains_the_secret(onelake: OneLake, tmp_path: Path) -> None:
    """Slow, because the test searches everything that Spark writes from start to stop, with a Spark of its own."""
    tables = "tables:\n  - {source: ./orders, target: orders, keys: [id]}\n"
    (tmp_path / "mirrorfeed.yml").write_text(
        onelake.configuration() + "upload_from: executors\n" + tables, encoding="utf-8"
    )
    (tmp_path / "events").mkdir()
    # The second publication fails in executors. The first one creates data and the file that marks its start.
    onelake.server.faults.add(Fault("create", How.ANSWER, 1000, status=403, code="Forbidden", after=2))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(INTERPRETED)],
        env=os.environ | {SECRET: onelake.authority.secret, "MIRRORFEED_CACHE": str(own_cache(tmp_path))},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output.decode()
    printed = " ".join(output.decode().split())
    assert "snapshot to 1" in printed
    assert "Executors cannot upload files to" in printed
    assert "OneLake does not allow this identity to write" in printed

    contents = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(
        "MapInArrow" in content.decode(errors="replace") for path, content in contents.items() if "/events/" in path
    )
    contents |= {path: node.content for path, node in onelake.files.nodes.items()}
    contents |= {"output": output, "calls": repr(onelake.calls).encode()}
    hidden = [onelake.authority.secret, *onelake.authority.tokens]
    assert len(hidden) > 2
    assert [path for path, content in contents.items() if any(word.encode() in content for word in hidden)] == []


def own_cache(folder: Path) -> Path:
    """Ivy cache with Delta's JARs at the usual place, and a separate log."""
    cache = folder / "cache"
    cache.mkdir()
    others = Path(os.environ.get("MIRRORFEED_CACHE") or "~/.cache/mirrorfeed").expanduser()
    for resolved in others.glob("ivy-*"):
        (cache / resolved.name).symlink_to(resolved)
    return cache
