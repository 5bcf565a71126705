"""Every form of files from Delta tables through Spark into mirrors, by the commands."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from tests.delta import DeltaTable

COLUMNS = "id int, b tinyint, v string, price decimal(12,2), at timestamp, day date, raw binary, tags array<string>"
CONFIG = """\
landing_zone: landing
tables:
  - {source: ./text, target: sales.text, keys: [id], format: delimited, changes: full, markers: exact,
     compression: gzip, delimited: {extension: tsv, row_separator: "\\n", column_separator: "\\t",
       encoding: windows-1252, undeclared_types: string}}
  - {source: ./text, target: sales.undeclared, keys: [id], format: delimited, default_marker: upsert,
     compression: snappy, delimited: {schema_definition: false, "null": N/A}}
  - {source: ./text, target: sales.upserted, keys: [id], detection: time, default_marker: upsert, compression: snappy}
  - {source: ./text, target: sales.exact, keys: [id], changes: full, markers: exact, compression: none}
"""
TABLES = ("text", "undeclared", "exact", "upserted")


def run(project: Path, *arguments: str, code: int = 0) -> str:
    """What a command printed, in one line."""
    result = CliRunner().invoke(main, [*arguments, "--config", str(project / "mirrorfeed.yml")], env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_a_table_in_each_form_is_mirrored_value_for_value(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "text", COLUMNS)
    (tmp_path / "mirrorfeed.yml").write_text(CONFIG, encoding="utf-8")
    landing, mirror = str(tmp_path / "landing"), str(tmp_path / "mirror")
    table.sql("""INSERT INTO {} VALUES
        (1, -128Y, 'a "quoted",\\r\\n\\tvalue', 1.50, timestamp'0001-01-01 00:00:00Z', date'9999-12-31', X'00FF', NULL),
        (2, NULL, '', NULL, timestamp'9999-12-31 23:59:59.999999Z', NULL, X'', array('x', NULL)),
        (3, 7Y, NULL, -0.01, NULL, date'0001-01-01', NULL, array())""")
    run(tmp_path, "publish")
    table.sql("UPDATE {} SET id = 5 - id WHERE id > 1")  # 2 and 3 change places
    table.sql("INSERT OVERWRITE {} SELECT id, b, concat(coalesce(v, ''), '€'), price, at, day, raw, tags FROM {}")
    table.sql("DELETE FROM {} WHERE id = 1")
    published = run(tmp_path, "publish")
    for table_name, rows in zip(TABLES, ("5 updates, 1 delete", "2 upserts, 1 delete") * 2, strict=True):
        assert f"sales.{table_name}: published up to version 4: {rows}" in published

    run(tmp_path, "lint", landing)
    replicated = run(tmp_path, "replicate", landing, mirror)
    verified = run(tmp_path, "verify", "--mirror", mirror)
    assert [name for name in TABLES if f"sales.{name}: equal at version 4, 2 rows" not in verified] == [], replicated

    table.sql("INSERT INTO {} (id, v) VALUES (9, 'Łódź')")
    refused = run(tmp_path, "publish", "sales.text", code=1)
    assert (
        "in version 5 a value has a character that the encoding of the files lacks (id = 9, column 'v': 'Ł')" in refused
    )

    spark.sql(f"UPDATE delta.`{mirror}/sales/undeclared` SET price = 'much', raw = '?' WHERE id = 3")
    wrong = run(tmp_path, "verify", "sales.undeclared", "--mirror", mirror, code=1)
    assert "id = 3: price is NULL in the source, 'much' in the mirror" in wrong
    assert "id = 3: raw is '' in the source, '?' in the mirror" in wrong
