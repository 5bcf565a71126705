"""The public API: exported names, what an import loads, and how results are displayed."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mirrorfeed
from mirrorfeed.api import results
from mirrorfeed.api.archive_table import ArchiveAwareTable
from mirrorfeed.api.results import Comparison, Difference, FailedRowsError, Finding, Result, Status, TableResult
from mirrorfeed.errors import MirrorfeedError, TerminalError, with_code
from mirrorfeed.mirror import local_replica
from mirrorfeed.monitor.findings import Severity
from mirrorfeed.source.errors import feed_off
from mirrorfeed.storage.errors import StorageUnavailableError
from tools.public_api import FUNCTIONS, GROUPS, described_parameters, functions, members, signatures, values

ROOT = Path(__file__).parents[2]

# The public API. Change a line only after a release has warned about the change.
NAMES = (
    "ArchiveAwareTable ArchiveError ArchivedFilesNeededError ConcurrentPublisherError ConfigurationError"
    " CredentialsError FabricError Feed HistoryError LandingZoneError MirrorError MirrorfeedError RowsRefusedError"
    " SourceError SparkError SparkSessionLostError StorageError TerminalError TransientError UnexpectedError deployed"
    " guarded load"
)
SIGNATURES = {
    "load": (
        "(path='mirrorfeed.yml', spark=None, *, landing_zone=None, ledger=None, staging_path=None, secret_scope=None,"
        " variables=None)"
    ),
    "deployed": "(dbutils, spark)",
    "guarded": "(spark)",
    "guarded(…).sql": "(statement, args=None)",
    "guarded(…).table": "(name)",
    "guarded(…).frame": "(frame, statement=None)",
    "ArchiveAwareTable": "(spark, name, *, prices=None, ledger=None)",
    "Feed.tables": "",
    "Feed.landing_zone": "",
    "Feed.setup": "",
    "Feed.fabric": "",
    "Feed.history": "",
    "Feed.archive": "",
    "Feed.sources": "()",
    "Feed.publish": "(*tables, on_step=None, on_done=None, stop=None)",
    "Feed.follow": "(*tables, minutes=None, on_done=None, stop=None)",
    "Feed.publisher": "(*tables)",
    "Feed.dry_run": "(*tables)",
    "Feed.status": "(*tables, behind=False, fabric=False, mirror=None)",
    "Feed.verify": "(*tables, mirror=None, shown=5, since_last=False, sample=0, quick=False)",
    "Feed.repair": "(table, mirror=None, where=None, *, source_only=False, on_step=None)",
    "Feed.rebuild": "(table, minutes=10.0, confirm=None, *, on_step=None, on_done=None, stop=None)",
    "Feed.adopt": "(table, published, mirror=None)",
    "Feed.log": "(table)",
    "Feed.lint": "(check_keys=False)",
    "Feed.history_view": "(table, name=None)",
    "Feed.replicate": "(folder, poll_seconds=None, on_pass=None, stop=None)",
    "Feed.doctor": "(*tables, fix=False, deep=False, on_finding=None, stop=None)",
    "Feed.check_alerts": "(mirror=None, *, deep=False, stop=None)",
    "Feed.enable_cdf": "(*tables)",
    "Feed.changes": "(table, start=None, end=None, past_end='error')",
    "Feed.drop": "(table, confirm=None)",
    "Feed.report": "()",
    "Feed.setup.check": "()",
    "Feed.setup.check_platform": "()",
    "Feed.setup.go_live": "(ask=None, checks=())",
    "Feed.setup.partner": "(force=False)",
    "Feed.fabric.create": "(name)",
    "Feed.fabric.start": "(*, force=False, minutes=10.0)",
    "Feed.fabric.stop": "(minutes=10.0)",
    "Feed.fabric.resume": "(minutes=10.0)",
    "Feed.fabric.status": "()",
    "Feed.fabric.log": "(hours=24.0)",
    "Feed.fabric.plan": "()",
    "Feed.fabric.apply": "(confirm=None)",
    "Feed.fabric.refresh": "()",
    "Feed.history.append": "(*tables, reseed=False)",
    "Feed.history.status": "(*tables)",
    "Feed.history.replay": "(table, into, at)",
    "Feed.archive.table": "(table=None)",
    "Feed.archive.plan": "(query, *, priority='standard', prices=None, save_as=None)",
    "Feed.archive.restore": "(plan, *, wait=True, poll_seconds=300.0, tier='hot', keep_days=None, into=None,"
    " rows=None, prices=None, on_step=None)",
    "Feed.archive.report": "(*tables, prices=None)",
    "ArchiveAwareTable.name": "",
    "ArchiveAwareTable.query": "(where=None, columns=None, version=None)",
    "ArchiveAwareTable.first": "(count=20, where=None, columns=None)",
    "ArchiveAwareTable.count": "(version=None)",
    "ArchiveAwareTable.bounds": "(column, version=None)",
    "ArchiveAwareTable.partitions": "(version=None)",
    "ArchiveAwareTable.limit": "(n, where=None)",
    "ArchiveAwareTable.recent": "(columns=None)",
    "ArchiveAwareTable.stream": "(starting_version=None)",
    "ArchiveAwareTable.files": "(where=None, version=None, *, tiers=False)",
    "ArchiveAwareTable.delete": "(where)",
    "ArchiveAwareTable.update": "(assignments, where=None)",
    "ArchiveAwareTable.merge": "(rows, keys, clauses, target_condition=None)",
    "ArchiveAwareTable.overwrite": "(rows)",
    "ArchiveAwareTable.interval": "()",
    "ArchiveAwareTable.set_interval": "(interval)",
    "ArchiveAwareTable.change_interval": "(interval, *, exact=False, rule_changed=False)",
    "ArchiveAwareTable.unset_interval": "(*, nothing_archived=False)",
    "ArchiveAwareTable.step": "(*, prices=None, ledger=None)",
    "ArchiveAwareTable.lifecycle": "(exported=None, *, state='on', take_over=False, interval=None)",
    "ArchiveAwareTable.check_lifecycle": "(exported)",
    "ArchiveAwareTable.share": "()",
    "ArchiveAwareTable.simulate": "(*intervals, where=(), predicates=None, prices=None)",
    "ArchiveAwareTable.plan": "(where=None, *, feed_from=None, feed_to=None, priority='standard', prices=None,"
    " save_as=None)",
    "ArchiveAwareTable.maintain": "(*, optimize=True, zorder=(), purge=False, analyze=False, vacuum=False)",
    "ArchiveAwareTable.check": "()",
    "Changes.first": "(count=20)",
    "Changes.counts": "()",
    "Changes.chart": "()",
    "Comparison.chart": "()",
    "DataFile.uris": "",
    "DroppedTable.consequences": "",
    "Finding.key": "",
    "Report.sections": "",
    "Report.notes": "",
    "Report.page": "()",
    "Report.draw": "(out)",
    "RestorePlan.save": "(path)",
    "Restoring.done": "",
    "Result.ok": "",
    "Result.check": "()",
    "Result.to_dict": "()",
    "Row.ok": "",
    "Row.to_dict": "()",
    "Setting.in_words": "",
    "Share.archived": "",
    "Share.active_bytes": "",
    "Share.cold_bytes": "",
    "Share.copied_bytes": "",
    "Share.summary": "",
    "Share.priced": "(rates)",
    "TableResult.first_load": "",
    "TableResult.in_words": "",
    "TableResult.is_idle": "",
    "TableResult.rows": "",
    "TableResult.step": "",
    "TableState.is_of": "(target)",
    "TableState.in_words": "",
}
VALUES = {
    "AdoptedTable": "table published_version last_file mirror",
    "Append": "table what rows newest_version from_version_exclusive to_version_inclusive began_again error",
    "Changes": "table from_version_exclusive to_version_inclusive rows",
    "Chart": "title html",
    "Comparison": "table what equal version published_version waiting_files source_rows mirror_rows differing"
    " differences repair error is_quick since_version compared_keys verified_through",
    "CreatedDatabase": "name created landing_zone",
    "DataRow": "values",
    "DatabaseStatus": "status",
    "Decision": "table next error delivery",
    "Difference": "key column source mirror",
    "DroppedTable": "table address files rows publications hashes",
    "Enabled": "table source feed error",
    "Alert": "table name what fix since resolved_at sent_to error",
    "GoLiveCheck": "number title result seen",
    "Finding": "severity code name table what fix command",
    "Explanation": "code name kind means next example",
    "History": "table history since versions newest_version lag_versions rows error",
    "HistoryView": "table view sql",
    "LintFinding": "code severity file what next",
    "Listed": "table source selected keys takes part delivery why error",
    "LogRecord": "table record time what from_version_exclusive to_version_inclusive inserts updates upserts"
    " deletes files bytes build places error",
    "PartnerFile": "address written",
    "Recent": "rows version left_out",
    "Repair": "table what upserts deletes files published_version error",
    "Replay": "into history version committed created",
    "Report": "as_of figures note",
    "RestorePlan": "tables versions query zone files bytes hours cost currency path",
    "Restoring": "table ready pending archived into rows notes",
    "Result": "rows notes summary",
    "Setting": "field current wanted changes note",
    "Share": "table files bytes archived_files archived_bytes restored_files restored_bytes bytes_by_age"
    " copies month_cost month_saving currency error",
    "Status": "table source state feed service published_version newest_version lag_versions lag_seconds"
    " not_renamed not_consumed has_consumed freshness error delivery verified_through verified_at paused load"
    " special_step",
    "TableExecution": "table operation time rows bytes latency_seconds error",
    "TableReport": "table state files rows message error",
    "TableResult": "table what from_version_exclusive to_version_inclusive published_version load inserts updates"
    " upserts deletes files bytes seconds lag_versions tries error reseeded stopped",
    "TableState": "table status rows error synced",
    "TableSync": "table status synced error",
    "VersionChanges": "version inserts updates deletes",
    "DataFile": "uri bytes rows age_days partition deletion_vector why tier",
    "FileCheck": "table missing",
    "Interval": "table days rule until exact archived notes",
    "Lifecycle": "table days problems policy apply rules_of_others",
    "Maintained": "table statements left_out notes",
    "Simulation": "table days version files bytes archived_files archived_bytes queries failing failing_queries"
    " month_cost month_saving currency",
}


def test_public_names_parameters_and_fields_are_as_documented() -> None:
    assert " ".join(mirrorfeed.__all__) == NAMES
    assert signatures() == SIGNATURES
    assert values() == VALUES


def test_every_function_with_more_than_three_parameters_describes_each_parameter() -> None:
    for name, member in functions().items():
        if isinstance(member, property):
            continue
        parameters = [each for each in inspect.signature(member).parameters if each != "self"]
        described = [*described_parameters(member)]
        assert described == (parameters if described or len(parameters) > 3 else []), name


def test_every_public_name_has_a_docstring() -> None:
    owners = [
        mirrorfeed.Feed,
        *GROUPS.values(),
        ArchiveAwareTable,
        *(getattr(results, name) for name in results.__all__),
    ]
    spoken = {name: member for owner in owners for name, member in members(owner)}
    spoken |= {name: getattr(mirrorfeed, name) for name in (*mirrorfeed.__all__, *FUNCTIONS)}
    assert [name for name, member in spoken.items() if not (member.__doc__ or "").strip()] == []
    assert not hasattr(mirrorfeed, "nothing_of_that_name")


def test_import_and_load_start_neither_spark_nor_cloud_clients(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./a, target: a, keys: [id]}]\n")
    code = (
        "import sys, mirrorfeed; mirrorfeed.Feed, mirrorfeed.MirrorfeedError\n"
        "print(mirrorfeed.load().tables)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'pyspark', 'py4j', 'azure', 'boto3', 'botocore', 'databricks', 'pyarrow'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["('a',)", "[]"]


class Gone(TerminalError):
    code = "MF0000"
    what = "It is gone."
    fix = "Look for it."


def status(table: str, error: MirrorfeedError | None = None, lag: int | None = 0) -> Status:
    return Status(table, f"main.{table}", "behind", "on", None, 3, 3 + (lag or 0), lag, 0.0, 0, 0, False, None, error)


def publication(table: str, error: MirrorfeedError | None = None) -> TableResult:
    return TableResult(table, 0, 3, 3, upserts=7, files=1, bytes=2048, seconds=1.25, latest=3, error=error)


def test_result_is_a_sequence_with_an_overall_status() -> None:
    found = Result((status("a"), status("b", Gone())))
    assert [row.table for row in found] == ["a", "b"]
    assert (len(found), found[0].ok, found[1].ok, found.ok, found[:1]) == (2, True, False, False, (found[0],))
    with pytest.raises(FailedRowsError) as raised:
        found.check()
    assert str(raised.value) == "b: MF0000: It is gone. Look for it."
    assert Result((status("a"),)).check() is None


def test_result_as_json_has_errors_with_their_fields() -> None:
    error = feed_off(table="main.a", version=4)
    as_dict = Result((publication("a", error=error),), ("A note.",)).to_dict()
    json.dumps(as_dict)
    assert (as_dict["ok"], as_dict["notes"], as_dict["rows"][0]["table"]) == (False, ["A note."], "a")
    assert as_dict["rows"][0]["error"] == error.to_dict()


def test_result_is_a_table_in_notebook_and_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    found = Result(
        (publication("sales.orders"), publication("b<", error=feed_off(table="main.b", version=4))), ("A note.",)
    )
    html = found._repr_html_()
    assert "<th>table</th><th>published</th>" in html
    assert '<td>sales.orders</td><td>1 to 3</td><td class="n">7</td>' in html
    assert "b&lt;" in html
    assert "deletes" not in html  # no row has deletes
    assert '<p class="bad">b&lt;: ' in html
    lines = repr(found).splitlines()
    assert lines[1].split()[1:3] == ["table", "┃"]
    assert lines[-1] == "A note."
    assert lines[-2].startswith("b<: ")
    assert repr(Result[Status]((), summary="Nothing is wrong.")) == "Nothing is wrong."


def test_different_mirror_is_not_ok_and_lists_its_first_differences() -> None:
    differences = (Difference("id = 1", "v", "a", "b"), Difference("id = 2", "", "once", "not there"))
    row = Comparison("a", "DIFFERENT at version 3: …", False, 3, 3, 0, 9, 8, 2, differences)
    assert not row.ok
    assert "DIFFERENT" in row._repr_html_()
    assert "a: id = 1: v is 'a' in the source, 'b' in the mirror" in str(row)
    assert row.to_dict()["differences"][0] == {"key": "id = 1", "column": "v", "source": "a", "mirror": "b"}
    assert "(whole row)" in repr(Result(differences))
    chart = row.chart()
    assert "<h2>a: first differences by column</h2>" in chart._repr_html_()
    assert "<svg" not in repr(chart)


def test_arguments_that_would_have_no_effect_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: ./zone\ntables: [{source: ./t, target: s.t, keys: [id]}]\n")
    feed = mirrorfeed.load(file)
    for call in (
        lambda: feed.archive.table("s.t").plan("id = 1", feed_from=1),
        lambda: feed.archive.table("s.t").plan(feed_to=2),
    ):
        with pytest.raises(ValueError, match=r"^changes are always read completely"):
            call()


@pytest.mark.parametrize("severity", Severity)
def test_finding_is_ok_up_to_severity_note(severity: Severity) -> None:
    found = Result((Finding(severity, "MF101", "NAME", "a", "What it is.", "what helps"),))
    assert found.ok is (severity.value in ("note", "unknown", "ok", "not applicable"))
    if not found.ok:
        with pytest.raises(FailedRowsError, match=rf"{severity.value} +MF101 NAME: a: What it is\.\n +Fix: what helps"):
            found.check()


def test_pass_over_an_unavailable_landing_zone_has_only_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: ./zone\ntables: [{source: ./t, target: s.t, keys: [id]}]\n")
    error = StorageUnavailableError(action="list", address="zone", reason="it sleeps")
    monkeypatch.setattr(local_replica, "run_passes", lambda *_: iter([error]))
    found = mirrorfeed.load(file).replicate(str(tmp_path / "mirror"), 1)
    assert (found.rows, found.notes, found.summary) == ((), (with_code(error),), "")


def test_broken_function_for_each_pass_is_reported_once_and_all_passes_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bool:
        raise ValueError("no such widget")

    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: ./zone\ntables: [{source: ./t, target: s.t, keys: [id]}]\n")
    monkeypatch.setattr(local_replica, "run_passes", lambda *given: iter([[], []] if given[-1]() is False else []))
    found = mirrorfeed.load(file).replicate(str(tmp_path / "mirror"), 1, broken, broken)
    assert [note.partition(":")[0] for note in found.notes] == ["MF1012", "MF1012"]
    assert found.summary == "The landing zone contains no tables."
