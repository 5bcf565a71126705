"""Profile one more run of each side: Spark's stage metrics and the phases of the product."""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files import duplicate_keys, row_staging
from mirrorfeed.publish.files.spark_files import upload_files
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, finish_publication
from tests.bench.race import Case

_PHASES: Mapping[str, Callable[..., object]] = {
    "look at the landing zone": TableLog.read_latest,
    "history and identity": DeltaFeed.facts,
    "schema": DeltaFeed.schema,
    "checks before": DeltaFeed.check,
    "metadata": metadata_files.ensure,
    "plan of a range": DeltaFeed._changed_rows,
    "all of staging": DeltaFeed.stage,
    "few rows taken": row_staging.collect_small_batch,
    "files named": StagingArea.file_paths,
    "keys compared": duplicate_keys.may_have_duplicates,
    "files sent": upload_files,
    "identity again": DeltaFeed.is_unchanged,
    "record": TableLog.add_record,
    "look after it, rename": finish_publication,
    "clean up": clean_up,
}
"""As they follow each other; what one calls counts for it too. Of many tables, each in a thread, none show."""
_PER_UNIT = {"B": 2**-20, "KiB": 2**-10, "MiB": 1.0, "GiB": 2**10}


def profile(spark: SparkSession, case: Case) -> dict[str, Any]:
    found: dict[str, Any] = {"sides": {}, "phases": {}}
    for number, (name, side) in enumerate(case.sides.items()):
        case.between()
        stage, query = _last_stage(spark), _last_query(spark)
        if number == 0:
            watched = cProfile.Profile()
            watched.runcall(side)
            found["phases"] = phases(pstats.Stats(watched))
        else:
            side()
        found["sides"][name] = {**_stages(spark, stage), **_python(spark, query)}
    return found


def phases(stats: pstats.Stats) -> dict[str, float]:
    """Seconds in each phase that there was."""
    functions: Mapping[tuple[str, int, str], tuple[int, int, float, float, object]] = stats.stats  # type: ignore[attr-defined]
    found = {}
    for name, function in _PHASES.items():
        code = function.__code__
        if (at := functions.get((code.co_filename, code.co_firstlineno, code.co_name))) is not None:
            found[name] = at[3]
    return found


def _stages(spark: SparkSession, after: int) -> dict[str, float]:
    new = [stage for stage in _all_stages(spark) if stage.stageId() > after and stage.numCompleteTasks()]
    return {
        "stages": len(new),
        "tasks": sum(stage.numCompleteTasks() for stage in new),
        "task CPU s": sum(stage.executorCpuTime() for stage in new) / 1e9,
        "GC s": sum(stage.jvmGcTime() for stage in new) / 1e3,
        "shuffled MiB": sum(stage.shuffleWriteBytes() for stage in new) / 2**20,
        "spilled MiB": sum(stage.diskBytesSpilled() for stage in new) / 2**20,
    }


def _last_stage(spark: SparkSession) -> int:
    return max((stage.stageId() for stage in _all_stages(spark)), default=-1)


def _all_stages(spark: SparkSession) -> list[Any]:
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    no_jars = jvm.java.util.ArrayList()
    found = context.statusStore().stageList(None, False, False, spark._sc._gateway.new_array(jvm.double, 0), no_jars)
    return [found.apply(i) for i in range(found.size())]


def _last_query(spark: SparkSession) -> int:
    return max((query.executionId() for query in _all_queries(spark)), default=-1)


def _all_queries(spark: SparkSession) -> list[Any]:
    """As many as Spark remembers."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [found.apply(i) for i in range(found.size())]


def _python(spark: SparkSession, after: int) -> dict[str, float]:
    """Bytes that went to Python's workers and came back."""
    store = spark._jsparkSession.sharedState().statusStore()
    wanted = {"data sent to Python workers": "to Python MiB", "data returned from Python workers": "from Python MiB"}
    found = dict.fromkeys(wanted.values(), 0.0)
    for query in (each for each in _all_queries(spark) if each.executionId() > after):
        values, metrics = store.executionMetrics(query.executionId()), query.metrics()
        for j in range(metrics.size()):
            metric = metrics.apply(j)
            if metric.name() in wanted and values.contains(metric.accumulatorId()):
                found[wanted[metric.name()]] += mib(values.apply(metric.accumulatorId()))
    return found


def mib(text: str) -> float:
    """Of a size as Spark shows it, the sum of all tasks."""
    number, unit = re.findall(r"([0-9.]+) ([KMG]?i?B)", text)[0]
    return float(number) * _PER_UNIT[unit]
