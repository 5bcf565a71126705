"""OpenLineage events of publications: written by the file transport of the client, and checked with its schemas.

`openlineage` has the published schemas, from the folder `spec` of https://github.com/OpenLineage/OpenLineage.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from pyspark.sql import SparkSession
from referencing import Registry, Resource

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.orchestration.exporter import Finished
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import feed_off
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import snapshot_and_range
from tests.support.delta import DeltaTable
from tests.support.entries import entry

lineage = pytest.importorskip("mirrorfeed.orchestration.lineage", exc_type=ImportError)
from openlineage.client.serde import Serde  # noqa: E402

SCHEMAS = [json.loads(path.read_text(encoding="utf-8")) for path in Path(__file__).parent.glob("openlineage/*.json")]
REGISTRY = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS)
ONELAKE = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def check(event: dict[str, Any]) -> None:
    """Validate an event and each of its facets with the schema that it names."""
    datasets = [*event["inputs"], *event["outputs"]]
    groups = [event["run"]["facets"], event["job"]["facets"]]
    groups += [each.get(name, {}) for each in datasets for name in ("facets", "inputFacets", "outputFacets")]
    facets = [facet for group in groups for facet in group.values()]
    for part, url in [(event, event["schemaURL"]), *((facet, facet["_schemaURL"]) for facet in facets)]:
        Draft202012Validator({"$ref": url}, registry=REGISTRY, format_checker=FormatChecker()).validate(part)


def events(finished: Finished, config: Config, workspace: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(Serde.to_json(each)) for each in lineage.events(finished, config, workspace)]
    for event in found:
        check(event)
    return found


def config(zone: str) -> Config:
    return Config(landing_zone=zone, tables=())


def published(folder: Path) -> Finished:
    """Result of a snapshot and, after a change, of a range."""
    return Finished(entry(), snapshot_and_range(FolderStore(str(folder))))


def test_publication_is_a_run_with_version_range_schema_and_row_count(tmp_path: Path) -> None:
    finished = published(tmp_path)
    found = events(finished, config("/zone"), "adb-1.azuredatabricks.net")
    assert [each["eventType"] for each in found] == ["START", "COMPLETE", "START", "COMPLETE"]
    assert found[0]["run"]["runId"] == found[1]["run"]["runId"] != found[2]["run"]["runId"]
    assert found[2]["eventTime"] < found[3]["eventTime"] == finished.result.records[1].at.isoformat()
    assert {(each["job"]["namespace"], each["job"]["name"]) for each in found} == {
        ("mirrorfeed", "publish.sales.orders")
    }
    (source,), (output,) = found[3]["inputs"], found[3]["outputs"]
    assert (source["namespace"], source["name"]) == ("databricks://adb-1.azuredatabricks.net", "main.sales.orders")
    last = finished.result.records[1]
    assert source["facets"]["version"]["datasetVersion"] == str(last.to_version_inclusive)
    assert source["facets"]["version"]["fromVersionExclusive"] == last.from_version_exclusive
    assert "fromVersionExclusive" not in found[1]["inputs"][0]["facets"]["version"]
    assert (output["namespace"], output["name"]) == ("file", "/zone/sales.schema/orders")
    names = [each["name"] for each in output["facets"]["schema"]["fields"]]
    assert names == [column.name for column in last.columns]
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (1, last.size, 1)


def test_repeated_event_has_the_same_run_id(tmp_path: Path) -> None:
    finished = published(tmp_path)
    first, second = (events(finished, config("/zone")) for _ in range(2))
    assert first == second


def test_failure_is_a_run_that_fails_with_the_message() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    error = feed_off(table="main.sales.orders", version=3)
    finished = Finished(entry(), TableResult("sales.orders", seconds=60.0, error=error), at)
    start, fail = events(finished, config("/zone"))
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert datetime.fromisoformat(start["eventTime"]) == at - timedelta(minutes=1)
    assert fail["run"]["facets"]["errorMessage"]["message"] == str(error)
    assert fail["outputs"][0]["name"] == "/zone/sales.schema/orders"


@pytest.mark.parametrize(
    ("source", "zone", "input_", "output"),
    [
        (
            "abfss://lake@acct.dfs.core.windows.net/sales/orders",
            "onelake://{}/{}".format(*ONELAKE),
            ("abfss://lake@acct.dfs.core.windows.net", "sales/orders"),
            (f"abfss://{ONELAKE[0]}@onelake.dfs.fabric.microsoft.com", f"{ONELAKE[1]}/Tables/sales/orders"),
        ),
        (
            "/Volumes/main/lake/orders",
            "/zone",
            ("file", "/Volumes/main/lake/orders"),
            ("file", "/zone/sales.schema/orders"),
        ),
        ("sales.orders", "/zone", ("spark", "sales.orders"), ("file", "/zone/sales.schema/orders")),
    ],
)
def test_tables_have_the_names_of_the_conventions(
    source: str, zone: str, input_: tuple[str, str], output: tuple[str, str]
) -> None:
    failed = TableResult("sales.orders", error=feed_off(table=source, version=3))
    start, _ = events(Finished(entry(source), failed), config(zone))
    assert [(each["namespace"], each["name"]) for each in (*start["inputs"], *start["outputs"])] == [input_, output]


def test_run_sends_an_event_for_each_publication_and_each_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(spark, tmp_path / "a").insert(1, 2)
    DeltaTable(spark, tmp_path / "b", feed=False)
    tables = "".join(f"  - {{source: ./{name}, target: {name}, keys: [id]}}\n" for name in "ab")
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\nlineage: openlineage\ntables:\n{tables}")
    settings = {"TYPE": "file", "LOG_FILE_PATH": str(tmp_path / "events.jsonl"), "APPEND": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    problems: list[Any] = []
    context = RunContext(spark, load(tmp_path / "mirrorfeed.yml"), Callbacks(on_problem=problems.append))
    first, second = publish_tables(context)
    assert (first.error, feed_off.matches(second.error), problems) == (None, True, [])
    sent = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    for event in sent:
        check(event)
    assert sorted((each["job"]["name"], each["eventType"]) for each in sent) == [
        ("publish.a", "COMPLETE"),
        ("publish.a", "START"),
        ("publish.b", "FAIL"),
        ("publish.b", "START"),
    ]
