"""Continue the folder of another publisher, after its mirror was compared with the version that its owner names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.log_record import Record
from mirrorfeed.lint.linter import lint_table
from mirrorfeed.lint.specification import LintSeverity
from mirrorfeed.mirror.verify import mirror_of, verify_at
from mirrorfeed.publish.adoption import adopt
from mirrorfeed.publish.adoption_errors import AdoptionRefusedError
from mirrorfeed.publish.change_sources import source_for
from mirrorfeed.publish.next_publication import with_keys, with_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@row
class AdoptedTable(Row):
    """A table whose folder another publisher has filled, and which mirrorfeed continues."""

    table: str = shown("table")
    published_version: int = shown("version")
    """Version of the source up to which the other publisher has published."""
    last_file: int = shown("last file")
    """Number of the other publisher's last file."""
    mirror: str = shown("mirror")
    """Comparison of the mirror with the version in words. "not compared" if no mirror was given."""

    def remarks(self) -> Sequence[str]:
        lines = ["run `mirrorfeed publish` to continue."]
        if self.mirror == "not compared":
            lines.insert(0, f"nothing has proven that the mirror is at version {self.published_version}. Run"
                         " `mirrorfeed verify` before the next publication.")  # fmt: skip
        return [f"{self.table}: {line}" for line in lines]


def adopt_table(
    spark: Callable[[], SparkSession], config: Config, name: str, version: int, mirrors: str | None
) -> AdoptedTable:
    """Record that another publisher has published a table up to `version`, so that publishing continues from there.

    Compares the mirror below the folder `mirrors` with this version first. Without `mirrors`, nothing proves the
    version. Raises an error, and writes nothing, if the table cannot be continued.
    """
    (table,), store = config.select([name]), zone_of(config)
    folder, table = table.target.folder, with_keys(with_tags(table, spark))
    compared = "not compared"

    def prove(record: Record) -> None:
        nonlocal compared
        progress.info("Checking the folder of %s", record.source)
        errors = [each for each in lint_table(store, folder) if each.severity is LintSeverity.ERROR]
        if errors:
            detail = f"{errors[0].code} {errors[0].file}: {errors[0].what}"
            raise AdoptionRefusedError(reason="lint", address=store.address(folder), detail=detail.rstrip("."))
        if mirrors is None:
            return
        progress.info("Comparing the mirror of %s with version %d", record.source, version)
        mirror = mirror_of(mirrors, table.target)
        comparison = verify_at(spark(), table.source, mirror, (record,), selection=table.selection)
        compared = str(comparison)
        if not comparison.equal:
            raise AdoptionRefusedError(
                reason="mirror", address=store.address(folder), table=record.source, version=version, detail=compared
            )

    record = adopt(source_for(spark(), config, table), store, table, version, prove)
    return AdoptedTable(str(table.target), version, record.next_file_number - 1, compared)
