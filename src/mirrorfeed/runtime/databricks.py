"""Databricks: the workspace client, and whether a session runs on its engine."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mirrorfeed.display.redact import remember

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession


def default_workspace() -> WorkspaceClient:
    """The workspace of the environment. Raises `ValueError` if none is configured."""
    from databricks.sdk import WorkspaceClient  # takes seconds to import, and few runs need it

    client = WorkspaceClient()
    remember(client.config.token or "")
    return client


@lru_cache(maxsize=8)
def is_databricks(spark: SparkSession) -> bool:
    """Whether the engine is the one of Databricks, in a runtime, over Connect or on serverless compute."""
    return bool(spark.sql("SHOW SYSTEM FUNCTIONS LIKE 'current_version'").collect())  # a function that only it has
