"""A configuration with all tables that it stands for now: what its patterns match is asked at every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirrorfeed.config import Config
from mirrorfeed.config.expand import Expansion, expand
from mirrorfeed.feed.listing import found
from mirrorfeed.workspace import default_workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def expanded(
    config: Config, spark: Callable[[], SparkSession], workspace: Callable[[], Any] = default_workspace
) -> Expansion:
    """Nothing is asked, and no Spark started, for a configuration that names each table by itself."""
    there = [found(each.sources, each.keys is not None, spark, workspace) for each in config.patterns]
    return expand(config, there)
