"""In which table's folder a file lies, as the logs that are there tell: for classic Spark, through its file systems."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.archive.file_index.log_file import plain


class Tables:
    """What was found is not looked up again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[str, str | None] = {}

    def holding(self, path: str) -> str | None:
        """The nearest folder, at or above, that has a log of Delta; None where there is none."""
        return self._at(self._spark._jvm.org.apache.hadoop.fs.Path(path))  # type: ignore[union-attr]

    def _at(self, folder: Any) -> str | None:
        name = plain(str(folder.toString()))
        if name not in self._found:
            log = self._spark._jvm.org.apache.hadoop.fs.Path(folder, "_delta_log")  # type: ignore[union-attr]
            system = folder.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
            above = folder.getParent()
            self._found[name] = name if system.exists(log) else None if above is None else self._at(above)
        return self._found[name]
