"""Read which columns of a table the option `transform_tags` selects."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Table
from mirrorfeed.config.tag_options import with_transformations
from mirrorfeed.source.catalog import read_column_tags
from mirrorfeed.source.table_info import newest_schema


def read_transformations(table: Table, spark: SparkSession) -> Table:
    """Return a copy of a table with `transform_tags`, in which `transform` has the columns with these tags."""
    # The columns are read first, so that a column that is added meanwhile counts as a column with unknown tags.
    schema = newest_schema(table.source, spark)
    columns = [each["name"] for each in schema["fields"]] if schema else []
    names = {rule.partition("=")[0] for rule in table.transform_tags or ()}
    return with_transformations(table, columns, read_column_tags(spark, table.source, names))
