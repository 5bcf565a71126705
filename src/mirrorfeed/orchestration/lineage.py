"""OpenLineage events of publications. Imported only if the configuration has `lineage: openlineage`.

The client reads its own settings: environment variables such as OPENLINEAGE_URL, or the file `openlineage.yml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.generated.base import RunFacet
from openlineage.client.uuid import generate_static_uuid

from mirrorfeed.config.model import Config, Table
from mirrorfeed.landing.log_record import Record
from mirrorfeed.mirror.verify import mirror_of, mirrors_folder
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.orchestration.exporter import Finished, Lags

_PRODUCER = "https://pypi.org/project/mirrorfeed"
_NAMESPACE = "OPENLINEAGE_NAMESPACE"
"""Environment variable with the namespace of jobs, as for other integrations of OpenLineage."""


class Lineage:
    """Sends a START and a COMPLETE event for each publication, and a START and a FAIL event for each failure."""

    def __init__(self, config: Config) -> None:
        self._config, self._client = config, OpenLineageClient()

    def send(self, finished: Finished) -> None:
        workspace = self._workspace if finished.table.source.path is None else None
        for event in events(finished, self._config, workspace):
            self._client.emit(event)

    def send_lags(self, lags: Lags) -> None:
        """Send nothing: OpenLineage has no lags."""

    def close(self) -> None:
        self._client.close()

    @cached_property
    def _workspace(self) -> str | None:
        """Host of the Databricks workspace. None if none is configured."""
        try:
            return urlsplit(default_workspace().config.host).netloc
        except ValueError:
            return None


def events(finished: Finished, config: Config, workspace: str | None = None) -> Iterator[RunEvent]:
    """Yield the events of a result. `workspace` is the host of the Databricks workspace, if the source is in one."""
    table, result = finished.table, finished.result
    source, output = _dataset_of(table.source, workspace), _dataset_of(_output_of(table, config), workspace)
    for record in result.records:
        measured = result.measured.get(record.batch, {})
        run = _Run(table, record.at, sum(measured.get(name) or 0.0 for name in ("stage_seconds", "record_seconds")))
        inputs = [InputDataset(*source, facets={"version": _version_of(record)})]
        outputs = [OutputDataset(*output, facets={"schema": _schema_of(record)}, outputFacets=_statistics_of(record))]
        yield from run.events(RunState.COMPLETE, inputs, outputs)
    if result.error:
        run = _Run(table, finished.at, result.seconds)
        error = error_message_run.ErrorMessageRunFacet(message=str(result.error), programmingLanguage="PYTHON")
        yield from run.events(RunState.FAIL, [InputDataset(*source)], [OutputDataset(*output)], errorMessage=error)


@dataclass(frozen=True)
class _Run:
    """Run of the job of a table. Its id depends only on the fields, so that repeated events have no effect."""

    table: Table
    end: datetime
    seconds: float

    def events(
        self, state: RunState, inputs: list[InputDataset], outputs: list[OutputDataset], **facets: RunFacet
    ) -> Iterator[RunEvent]:
        name = f"publish.{self.table.target}"
        run_id = str(generate_static_uuid(self.end, name.encode()))
        engine = processing_engine_run.ProcessingEngineRunFacet(version=this_build(), name="mirrorfeed")
        kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="MIRRORFEED", jobType="JOB")
        job = Job(os.environ.get(_NAMESPACE, "mirrorfeed"), name, {"jobType": kind})
        start = self.end - timedelta(seconds=self.seconds)
        for time, event_type, own in ((start, RunState.START, {}), (self.end, state, facets)):
            yield RunEvent(
                eventTime=time.isoformat(),
                producer=_PRODUCER,
                run=Run(run_id, {"processing_engine": engine, **own}),
                job=job,
                eventType=event_type,
                inputs=inputs,
                outputs=outputs,
            )


def _dataset_of(source: Source, workspace: str | None) -> tuple[str, str]:
    """Return namespace and name of a table, as OpenLineage's naming conventions define them."""
    if source.path is None:
        return f"databricks://{workspace}" if workspace else "spark", ".".join(source.parts)
    address = urlsplit(source.path)
    return (
        (f"{address.scheme}://{address.netloc}", address.path.strip("/")) if address.scheme else ("file", source.path)
    )


def _output_of(table: Table, config: Config) -> Source:
    """Return the mirrored table or, if the landing zone is not in OneLake, the folder of the target."""
    if config.onelake is None:
        return Source(path=f"{config.landing_zone}/{table.target.folder}")
    return mirror_of(mirrors_folder(config, None), table.target)


def _version_of(record: Record) -> Any:
    """Return the last version of the range. `fromVersionExclusive` is the version before the range, if there is one."""
    facet = dataset_version_dataset.DatasetVersionDatasetFacet(str(record.to_version_inclusive))
    if record.from_version_exclusive is None:
        return facet
    return facet.with_additional_properties(fromVersionExclusive=record.from_version_exclusive)


def _schema_of(record: Record) -> schema_dataset.SchemaDatasetFacet:
    fields = [schema_dataset.SchemaDatasetFacetFields(column.name, column.type) for column in record.columns]
    return schema_dataset.SchemaDatasetFacet(fields)


def _statistics_of(record: Record) -> dict[str, Any]:
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=record.rows.total(), size=record.size, fileCount=len(record.files)
    )
    return {"outputStatistics": statistics}
