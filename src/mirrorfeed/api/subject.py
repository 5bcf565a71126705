"""Base class of the groups of operations of a `Feed`, such as `feed.history`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Config
from mirrorfeed.config.pattern_expansion import expand_patterns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Subject:
    """Operations on one subject, with the configuration and the session of a `Feed`."""

    def __init__(self, config: Config, spark: Callable[..., SparkSession]) -> None:
        self._config, self._spark = config, spark

    @property
    def _current_config(self) -> Config:
        """Configuration with the tables that match its patterns now. Every access lists the catalog or folder again."""
        return expand_patterns(self._config, self._spark).config
