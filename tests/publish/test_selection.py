"""Publish a part of a table through the commands, and change which part."""

from __future__ import annotations

import base64
import hmac
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable as AnyDeltaTable
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fixtures.mirror import canonical
from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.landing.errors import IncompatibleSchemaError, invalid_condition, invalid_selection, selection_changed
from mirrorfeed.landing.selection import Selection
from mirrorfeed.landing.transformation import hmac_pads
from mirrorfeed.orchestration import table_task
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.publish import column_tags
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.login import read_hash_key
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import apply_selection
from tests.performance.meter import recorded_events
from tests.raised import Expected, raises
from tests.support.delta import DeltaTable, Zone

COLUMNS = "order_id int, region string, note string, price decimal(20,10), ssn string"
PART = """\
    exclude_columns: [ssn]
    where: region = 'EU' AND price > 0
    rename: {order_id: order, note: remark}
    cast: {price: string, note: string(5)}
"""


@dataclass
class Shop:
    """One table that is published and replicated, in its own folder."""

    spark: SparkSession
    folder: Path

    def configure(self, part: str, more: str = "") -> None:
        text = (
            f"landing_zone: landing\n{more}tables:\n  - source: ./source\n    target: s.t\n    keys: [order_id]\n{part}"
        )
        (self.folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
        (self.folder / "landing").mkdir(exist_ok=True)

    def run(self, *arguments: str, code: int = 0) -> str:
        configured = () if arguments[0] == "replicate" else ("--config", str(self.folder / "mirrorfeed.yml"))
        found = CliRunner().invoke(main, [*arguments, *configured], env={"COLUMNS": "400"})
        assert found.exit_code == code, found.output
        return " ".join(found.output.split())

    def replicate(self) -> None:
        self.run("replicate", str(self.folder / "landing"), str(self.folder / "mirror"))

    def verified(self, code: int = 0) -> str:
        self.replicate()
        return self.run("verify", "--mirror", str(self.folder / "mirror"), code=code)

    @property
    def mirrored(self) -> dict[int, dict[str, Any]]:
        """Row values by order id, after the mirror applied all files."""
        self.replicate()
        return self.mirrored_by("order")

    def mirrored_by(self, key: str) -> dict[Any, dict[str, Any]]:
        rows = AnyDeltaTable(str(self.folder / "mirror/s/t")).to_pyarrow_table().to_pylist()
        return {row[key]: row for row in rows}

    @property
    def record(self) -> dict[str, Any]:
        newest = max(self.folder.glob("landing/s.schema/t/_mirrorfeed/*/*.json"))
        found: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
        return found


@pytest.mark.slow  # `test_delta_feed` publishes several files with all columns
def test_target_file_size_is_respected_with_few_selected_columns(spark: SparkSession, tmp_path: Path) -> None:
    """The source is too large for the driver to write the files."""
    table = DeltaTable(spark, tmp_path / "source", "id int, v string")
    rows = {"id": pa.array(range(30_000), pa.int32()), "v": [os.urandom(200).hex() for _ in range(30_000)]}
    write_deltalake(table.path, pa.table(rows), mode="append")
    assert sum(file.stat().st_size for file in table.path.glob("*.parquet")) > 9 * 2**20
    zone = Zone(tmp_path / "zone", table, target_file_size=2**20, selection=Selection(("id",)))
    first = zone.publish()
    assert (first.rows, first.files, first.bytes < 2**20) == ({"insert": 30_000}, 1, True)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("changes: net\n", id="net"),
        # `test_file_formats` covers delimited text.
        pytest.param("changes: full\nformat: delimited\n", id="full, as text", marks=pytest.mark.soak),
    ],
)
def test_selection_is_published_followed_verified_and_repaired(
    spark: SparkSession, tmp_path: Path, options: str
) -> None:
    shop, table = Shop(spark, tmp_path), DeltaTable(spark, tmp_path / "source", COLUMNS)
    shop.configure(PART, options)
    assert "snapshot at version 0" in shop.run("publish", "--dry-run")
    table.sql(
        "INSERT INTO {} VALUES (1, 'EU', 'one of many', 0.0000000001, 'x'), (2, 'US', 'b', 2, 'x'),"
        " (3, 'EU', 'c', -3, 'x'), (4, NULL, 'd', 4, 'x'), (5, 'EU', NULL, 5, 'x')"
    )
    shop.run("publish")
    assert shop.mirrored == {
        1: {"order": 1, "region": "EU", "remark": "one o", "price": "0.0000000001"},
        5: {"order": 5, "region": "EU", "remark": None, "price": "5.0000000000"},
    }
    table.sql("UPDATE {} SET region = CASE order_id WHEN 1 THEN 'US' WHEN 2 THEN 'EU' ELSE 'EU' END WHERE order_id < 5")
    table.sql("UPDATE {} SET order_id = 50 WHERE order_id = 5")
    shop.run("publish")
    assert shop.record["to_version_inclusive"] == 3
    assert shop.mirrored == {
        2: {"order": 2, "region": "EU", "remark": "b", "price": "2.0000000000"},
        4: {"order": 4, "region": "EU", "remark": "d", "price": "4.0000000000"},
        50: {"order": 50, "region": "EU", "remark": None, "price": "5.0000000000"},
    }
    table.sql("UPDATE {} SET note = 'not seen' WHERE order_id IN (1, 3)")
    assert shop.run("publish").count("version 4") >= 1
    assert shop.record["files"] == []  # not selected
    assert "up to date" in shop.run("status")
    mirror = DeltaTable.at(spark, tmp_path / "mirror/s/t")
    mirror.sql("UPDATE {} SET price = '7' WHERE remark = 'b'")
    mirror.sql("INSERT INTO {} VALUES (3, 'EU', 'c', '-3.0000000000')")
    output = shop.verified(code=1)
    assert "order = 2: price is '2.0000000000' in the source, '7' in the mirror" in output
    assert "order = 3: missing in the source, once in the mirror" in output
    shop.run("repair", "s.t", "--mirror", str(tmp_path / "mirror"))
    assert "equal at version 4, 3 rows" in shop.verified()


def test_changed_selection_needs_a_snapshot_but_a_dropped_column_does_not(spark: SparkSession, tmp_path: Path) -> None:
    shop, table = Shop(spark, tmp_path), DeltaTable(spark, tmp_path / "source", COLUMNS)
    table.sql("INSERT INTO {} VALUES (1, 'EU', 'a', 1, 'x'), (2, 'US', 'b', 2, 'x')")
    shop.configure(PART)
    shop.run("publish")
    assert shop.record["selection"]["where"] == "region = 'EU' AND price > 0"
    excluded = "'ssn' was excluded, so its values were never published"
    where = "`where` was \"region = 'EU' AND price > 0\" and is \"region = 'US' AND price > 0\""
    for part, words in {
        PART.replace("    exclude_columns: [ssn]\n", ""): excluded,
        PART.replace("EU", "US"): where,
    }.items():
        shop.configure(part)
        for command in (["publish"], ["publish", "--dry-run"], ["status"]):
            output = shop.run(*command, code=1)
            assert "MF3013" in output, command
            assert words in output or command == ["status"]
    shop.run("rebuild", "s.t", "--yes")
    second = {"order": 2, "region": "US", "remark": "b", "price": "2.0000000000"}
    assert shop.mirrored == {2: second}
    shop.configure(PART.replace("EU", "US").replace("[ssn]", "[ssn, region]"))  # the condition still uses it
    assert "nothing new" in shop.run("publish", "--dry-run")
    table.sql("INSERT INTO {} VALUES (3, 'US', 'c', 3, 'x')")
    shop.run("publish")
    third = {"order": 3, "region": None, "remark": "c", "price": "3.0000000000"}
    assert (shop.record["to_version_inclusive"], shop.mirrored) == (2, {2: second, 3: third})


HIDDEN = """\
    where: ssn <> 'out'
    transform: {order_id: hash, ssn: hash, note: "mask('-')", price: mask}
    hash_key: {env: HASH_KEY}
"""


def forms(key: str) -> list[str]:
    """Return the texts by which a secret, or what HMAC derives from it, could be recognized."""
    values = [key.encode(), *hmac_pads(key)]
    return [*(each.hex() for each in values), *(base64.b64encode(each).decode().rstrip("=") for each in values), key]


def test_hidden_values_are_exact_and_the_secret_is_nowhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is hashed. Updates, a delete, and a row that starts to match change the right rows."""
    key, folder = "not-to-be-found-4711-anywhere", tmp_path / "shop"
    read_hash_key.cache_clear()
    monkeypatch.setenv("HASH_KEY", key)

    def hashed(value: object) -> str:
        return hmac.new(key.encode(), str(value).encode(), "sha256").hexdigest()

    def row(number: int, region: str, ssn: str) -> tuple[str, dict[str, Any]]:
        values = {"region": region, "note": "-", "price": None, "ssn": hashed(ssn)}
        return hashed(number), {"order_id": hashed(number), **values}

    folder.mkdir()
    (tmp_path / "events").mkdir()
    shop, table = Shop(spark, folder), DeltaTable(spark, folder / "source", COLUMNS)
    shop.configure(HIDDEN)
    table.sql("INSERT INTO {} VALUES (1, 'EU', 'a', 1, 's-1'), (2, 'EU', 'b', 2, 's-1'), (3, 'EU', 'c', 3, 'out')")
    with recorded_events(spark, tmp_path / "events") as events:
        shop.run("publish")
        table.sql("UPDATE {} SET ssn = 's-3' WHERE order_id = 3")
        table.sql("DELETE FROM {} WHERE order_id = 1")
        table.sql("UPDATE {} SET region = 'US', price = 9 WHERE order_id = 2")
        output = shop.run("publish") + shop.run("publish", "--dry-run") + shop.run("status")
        output += shop.verified()
        plans = apply_selection(
            "t", spark.read.table(f"delta.`{table.path}`"), load(folder / "mirrorfeed.yml").tables[0].selection
        )
        shown = plans._jdf.queryExecution().toString() + str(spark._jvm.PythonSQLUtils.explainString(
            plans._jdf.queryExecution(), "codegen"))  # fmt: skip
    assert shop.mirrored_by("order_id") == dict([row(2, "US", "s-1"), row(3, "EU", "s-3")])
    assert "sha2" in shown
    texts = [output, shown, events.read_text(encoding="utf-8")]
    texts += [file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file()]
    assert [form for form in forms(key) for text in texts if form.lower() in text.lower()] == []

    read_hash_key.cache_clear()
    monkeypatch.setenv("HASH_KEY", "another-secret-of-this-test")
    table.sql("INSERT INTO {} VALUES (4, 'EU', 'd', 4, 's-4')")
    for command in (["publish"], ["publish", "--dry-run"], ["status"]):
        output = shop.run(*command, code=1)
        assert "MF3013" in output, command
        assert "`hash_key` was another secret" in output or command == ["status"]
    read_hash_key.cache_clear()
    monkeypatch.setenv("HASH_KEY", key)
    shop.configure(HIDDEN.replace("price: mask", "region: mask"))
    output = shop.run("publish", "--dry-run", code=1)
    assert "the transformation of 'region' was none and is 'mask'" in output


def test_columns_are_transformed_by_tag_and_a_new_tag_stops_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tags are simulated. The table is published by its path, which has none."""
    shop, table, tags = Shop(spark, tmp_path), DeltaTable(spark, tmp_path / "source", COLUMNS), {"ssn": {("pii", "x")}}
    shop.configure("")
    (configured,) = load(tmp_path / "mirrorfeed.yml").entries
    requests: list[Source] = []

    def read(_: SparkSession, source: Source, names: set[str]) -> dict[str, set[tuple[str, str]]]:
        requests.append(source)
        assert names == {"pii"}
        return tags

    def run(transform: dict[str, str] | None = None, **options: Any) -> TableResult:
        updates = {"transform_tags": transform, **options}
        config = load(tmp_path / "mirrorfeed.yml")
        context = RunContext(spark, config.model_copy(update={"entries": (configured.model_copy(update=updates),)}))
        (result,) = publish_tables(context)
        if result.error:
            (step,) = plan_next_steps(spark, context.config)
            assert (step.error and step.error.code) == result.error.code, "both decide the same"
        return result

    monkeypatch.setattr(column_tags, "read_column_tags", read)
    # Without Spark, a table in a folder is up to date before its tags are read. In Unity Catalog, Spark is needed.
    monkeypatch.setattr(table_task, "needs_no_spark", lambda _: False)
    rules = {"pii": "mask('*')"}
    table.sql("INSERT INTO {} VALUES (1, 'EU', 'a', 1, 's-1')")
    assert run(rules).error is None
    assert len(requests) == 1
    tags = {"ssn": {("pii", "x")}, "note": {("pii", "")}}
    table.sql("INSERT INTO {} VALUES (3, 'EU', 'clear', 3, 's-3')")
    stopped = run(rules)
    assert (stopped.error and stopped.error.code, stopped.records) == ("MF3017", [])
    assert "the transformation of 'note' was none and is \"mask('*')\"" in str(stopped.error)
    assert run(rules, exclude_columns=("note",)).rows == {"upsert": 1}
    shop.replicate()
    mirrored = shop.mirrored_by("order_id")
    assert {key: (row["ssn"], row["note"]) for key, row in mirrored.items()} == {
        1: ("*", "a"), 3: ("*", None),
    }  # fmt: skip


@pytest.fixture(scope="module")
def mapped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zone:
    """A part of a row at version 1 of a table with column mapping."""
    folder, properties = tmp_path_factory.mktemp("mapped"), {"delta.columnMapping.mode": "name"}
    table = DeltaTable(spark, folder / "source", "id int, v string, w string", properties=properties)
    table.sql("INSERT INTO {} VALUES (1, 'a', 'secret')")
    zone = Zone(folder / "zone", table, selection=Selection(exclude_columns=("w",), where="v <> 'x'"))
    zone.publish()
    return zone


@pytest.fixture
def part(mapped: Zone, tmp_path: Path) -> Zone:
    copy = Zone.copied(mapped, tmp_path)
    return Zone(copy.root, copy.table, selection=Selection(exclude_columns=("w",), where="v <> 'x'"))


@pytest.mark.parametrize(
    ("statements", "error", "words"),
    [
        pytest.param(
            ["ALTER TABLE {} RENAME COLUMN w TO x"],
            IncompatibleSchemaError,
            "'w' is missing",
            id="a column that was left out gets a name that is not",
        ),
        pytest.param(
            ["ALTER TABLE {} RENAME COLUMN v TO y"],
            invalid_selection,
            "`where` names 'v', which is not a column of the table",
            id="the condition's is renamed",
        ),
        pytest.param(
            ["ALTER TABLE {} DROP COLUMN v", "ALTER TABLE {} ADD COLUMN v string"],
            invalid_selection,
            "`where` names 'v', which is not a column of the table",
            id="or another",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_hidden_incompatible_source_changes_stop_the_table(
    part: Zone, statements: list[str], error: Expected, words: str
) -> None:
    for statement in statements:
        part.table.sql(statement)
    with raises(error, match=words):
        part.publish()
    assert part.record["to_version_inclusive"] == 1


@pytest.mark.slow  # as in `landing/test_selection`
def test_added_column_with_the_name_of_a_renamed_one_stops_the_table(mapped: Zone, tmp_path: Path) -> None:
    table = DeltaTable.copied(mapped.table, tmp_path / "source")
    zone = Zone(tmp_path / "zone", table, ("w2",), selection=Selection(exclude_columns=("w",), rename={"id": "w2"}))
    zone.publish()
    table.sql("ALTER TABLE {} ADD COLUMN W2 int")
    with raises(invalid_selection, match="two columns would have the name 'w2'"):
        zone.publish()
    assert zone.record["to_version_inclusive"] == 1


@pytest.mark.slow
def test_later_source_columns_are_published_or_excluded(part: Zone) -> None:
    part.table.sql("ALTER TABLE {} ADD COLUMNS (x int, y int)")
    part.table.sql("INSERT INTO {} VALUES (2, 'b', 'secret', 1, 2)")
    selection = Selection(exclude_columns=("w", "y"), where="v <> 'x'")
    later = Zone(part.root, part.table, selection=selection)
    later.publish()
    assert later.last == [{"id": 2, "v": "b", "x": 1, "__rowMarker__": 4}]
    with raises(selection_changed, match="'y' was excluded"):
        part.publish()
    part.table.sql("ALTER TABLE {} DROP COLUMN w")
    part.table.sql("INSERT INTO {} VALUES (3, 'c', 3, 3)")
    later.publish()
    assert later.last == [{"id": 3, "v": "c", "x": 3, "__rowMarker__": 4}]


def test_invalid_selection_is_refused_before_anything_is_staged(spark: SparkSession, tmp_path: Path) -> None:
    cases: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({"columns": ("id", "nope")}, invalid_selection, "`columns` names 'nope', which is not a column of the table"),
        ({"where": "v + 1"}, invalid_condition, "is not a boolean"),
        (
            {"where": "v > current_name"},
            invalid_selection,
            "`where` names 'current_name', which is not a column of the table",
        ),
        ({"cast": {"v": "int"}}, invalid_selection, "'v' is string, and not all its values can be cast to int"),
    )
    table = DeltaTable(spark, tmp_path / "t")
    for selection, error, words in cases:
        zone = Zone(tmp_path / "zone", table, selection=Selection(**selection))
        with raises(error, match=words):
            zone.publish()
        assert zone.everything() == {}


def test_table_without_keys_accepts_inserts_of_selected_rows(spark: SparkSession, tmp_path: Path) -> None:
    zone = Zone(tmp_path / "zone", DeltaTable(spark, tmp_path / "t"), (), selection=Selection(where="id > 2"))
    zone.table.insert(1, 2, 3)
    zone.publish()
    zone.table.sql("DELETE FROM {} WHERE id = 1")  # which no reader has seen
    zone.table.insert(4)
    zone.publish()
    assert [row["id"] for file in zone.files for row in file.to_pylist()] == [3, 4]


@pytest.mark.soak  # as in `publish/change_sources/test_history_source`
def test_selection_is_read_from_history_if_the_feed_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    shop, table = Shop(spark, tmp_path), DeltaTable(spark, tmp_path / "source", "order_id int, v string")
    shop.configure("    where: v <> 'out'\n    rename: {order_id: order}\n", "history: ./histories\n")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'out')")
    shop.run("publish")
    shop.run("history", "append")
    table.sql("UPDATE {} SET v = 'out' WHERE order_id = 1")
    table.sql("UPDATE {} SET v = 'in' WHERE order_id = 3")
    shop.run("history", "append")
    shutil.rmtree(table.path / "_change_data")  # as VACUUM would
    assert "mirrorfeed read these changes from the history" in shop.run("publish")
    assert shop.record["to_version_inclusive"] == 3
    assert shop.mirrored == {2: {"order": 2, "v": "b"}, 3: {"order": 3, "v": "in"}}


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [("txt", "text", ("id",)), pytest.param("id", "key", ("key",), marks=pytest.mark.slow)],
)
def test_renamed_column_continues_under_its_old_name(
    spark: SparkSession, tmp_path: Path, old: str, new: str, keys: tuple[str, ...]
) -> None:
    mapping = {"delta.columnMapping.mode": "name"}
    table = DeltaTable(spark, tmp_path / "t", "id int, txt string", properties=mapping)
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
    zone = Zone(tmp_path / "landing", table)
    zone.publish()
    table.sql(f"ALTER TABLE {{}} RENAME COLUMN {old} TO {new}")
    with pytest.raises(IncompatibleSchemaError, match=f"'{old}' was renamed to '{new}'") as stopped:
        zone.publish()
    assert f"add `{new}: {old}` to `rename`" in stopped.value.solution
    table.sql("INSERT INTO {} VALUES (3, 'c')")
    continued = Zone(tmp_path / "landing", table, keys, rename={new: old})
    continued.publish()
    assert canonical(continued.mirrored) == canonical({"id": n, "txt": v} for n, v in ((1, "a"), (2, "b"), (3, "c")))
