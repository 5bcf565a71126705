"""All file formats, from Delta tables through Spark and the commands into mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.publish.files import row_staging
from tests.support.delta import DeltaTable
from tests.support.file_formats import COLUMNS, play


@pytest.mark.parametrize(
    "few_rows",
    [
        # `tests/publish/files` covers the formats of small batches. Spark's files use the same upload.
        pytest.param(row_staging.SMALL_BATCH_ROWS, id="few rows", marks=pytest.mark.soak),
        pytest.param(0, id="Spark's files"),
    ],
)
@pytest.mark.slow
def test_table_in_each_file_format_is_mirrored_with_equal_values(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_rows: int
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", few_rows)

    def run(*arguments: str, code: int = 0) -> str:
        config = ["--config", str(tmp_path / "mirrorfeed.yml")]
        result = CliRunner().invoke(main, [*arguments, *config], env={"COLUMNS": "400"})
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    play(DeltaTable(spark, tmp_path / "text", COLUMNS).sql, tmp_path, run)
