"""Each finding of the closed list, from the facts that show it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import click
import pytest

from mirrorfeed.archive.guard.needed import ArchivedFilesNeeded
from mirrorfeed.cli import main
from mirrorfeed.credentials import CertificatesUnreadable, CredentialRefused, Default
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.fabric.errors import FabricUnavailable, NoPermission, TokenRefused
from mirrorfeed.feed.errors import (
    FeedOff,
    FilesArchived,
    Gap,
    PartitionsChanged,
    RowsProtected,
    SourceMissing,
    SourceRecreated,
)
from mirrorfeed.feed.ranges import EXPIRED
from mirrorfeed.landing.metadata import KeysChanged
from mirrorfeed.landing.strict_json import DamagedFile
from mirrorfeed.monitor.findings import REMEDIES, SAFE, Code, Weight, remedy
from mirrorfeed.monitor.rules import TableFacts, ZoneFacts, judge_table, judge_zone, seconds_left
from mirrorfeed.publish.errors import (
    FilesLost,
    FinalNameTaken,
    ForeignFile,
    LastFileGone,
    NumbersDisagree,
    StagedFileDamaged,
)
from mirrorfeed.stores import StoreUnavailable
from mirrorfeed.stores import answers as stores

HOUR, DAY = 3600.0, 86_400.0
WELL = {"published": 7, "lag_seconds": 0.0, "longest_wait": HOUR, "retention": 7 * DAY, "log_retention": 30 * DAY,
        "data_files": 1, "newest_file_age": 60.0, "service": "Replicating"}  # fmt: skip


def judged(**facts: Any) -> list[Code]:
    return [each.code for each in judge_table(TableFacts("s.t", "a.b.c", **{**WELL, **facts}))]


def test_a_table_that_is_well_gives_nothing() -> None:
    assert judged() == []
    assert judge_zone(ZoneFacts("Running", None, {"s.t": "Replicating"}, 1)) == judge_zone(ZoneFacts()) == []


def test_every_code_has_a_remedy_that_is_a_command_there_is() -> None:
    assert REMEDIES.keys() == set(Code)
    assert isinstance(main, click.Group)
    for template in REMEDIES.values():
        for command in template.split(" && "):
            if command.startswith("mirrorfeed "):
                group: click.Command = main
                for word in re.findall(r"[a-z-]+", command.removeprefix("mirrorfeed "))[:2]:
                    if isinstance(group, click.Group):
                        group = group.commands[word]
                assert not isinstance(group, click.Group)
    assert {Code.UNFINISHED, Code.ORPHANS} == SAFE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FeedOff(table="t", version=3), Code.FEED_OFF),
        (Gap(table="t", published=3, where=4, reason="the log has no commit"), Code.GAP),
        (Gap(table="t", published=3, where=4, reason=EXPIRED), Code.VACUUM_AHEAD),
        (SourceRecreated(table="t", published_id="a", found_id="b", published=3, latest=4), Code.SOURCE_RECREATED),
        (PartitionsChanged(table="t", published=3, before=["a"], now=["b"]), Code.SCHEMA_CHANGED),
        (KeysChanged("t", ("a",), ("b",)), Code.KEYS_CHANGED),
        (NumbersDisagree(address="zone/7", expected=5), Code.NUMBERS_DISAGREE),
        (ForeignFile(address="zone/x"), Code.NUMBERS_DISAGREE),
        (FinalNameTaken(address="zone/7", staged="zone/s"), Code.NUMBERS_DISAGREE),
        (FilesLost(address="zone/t", numbers=[3, 4]), Code.FILES_LOST),
        (StagedFileDamaged(address="zone/s", found=0, expected=9), Code.LOG_DAMAGED),
        (DamagedFile(address="zone/r", reason="it is not UTF-8"), Code.LOG_DAMAGED),
        (SourceMissing(table="t"), Code.SOURCE_MISSING),
        (FilesArchived(table="t", range=3), Code.ARCHIVE_BLOCKS),
        (ArchivedFilesNeeded("The change feed", "t", 3, None, [], 2), Code.ARCHIVE_BLOCKS),
        (CredentialRefused(Default(), "expired"), Code.CREDENTIAL),
        (CertificatesUnreadable("ca.pem", "no certificate found"), Code.CREDENTIAL),
        (stores.TokenRefused("zone", "401"), Code.CREDENTIAL),
        (stores.NoPermission("write", "zone", "403"), Code.PERMISSION),
        (RowsProtected(table="t", row_filter="a row filter", masked=()), Code.PERMISSION),
        (stores.CapacityPaused("zone", "paused"), Code.MIRRORING_PAUSED),
        (StoreUnavailable("list", "zone", "no answer"), Code.UNREACHABLE),
        (named("Looking", ValueError("what nobody knows")), Code.OTHER),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, MirrorfeedError) else each.name,
)
def test_what_publication_would_be_refused_with(error: MirrorfeedError, code: Code) -> None:
    (finding,) = judge_table(TableFacts("s.t", "a.b.c", "a.b.c", **{**WELL, "trouble": error}))  # type: ignore[arg-type]
    assert (finding.code, finding.what, finding.weight) == (code, str(error), Weight.WRONG)
    assert finding.remedy == remedy(code, table="s.t", source="a.b.c", source_name="a.b.c", zone="the landing zone")


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({"published": None, "folder": False, "data_files": 0}, [Code.NOT_PUBLISHED]),
        ({"published": None, "data_files": 0}, [Code.NOT_PUBLISHED, Code.EMPTY_TABLE]),
        ({"unfinished": 2}, [Code.UNFINISHED]),
        ({"data_files": 0, "last_gone": LastFileGone(address="zone/t", numbers=[4])}, [Code.LAST_FILE_GONE]),
        ({"orphans": ("a", "b")}, [Code.ORPHANS]),
        ({"empty_files": ("zone/7.parquet",)}, [Code.EMPTY_FILE]),
        ({"cloned_from": "a.b.original"}, [Code.CLONED]),
        # What the feed keeps, against the lag and the time that changes wait.
        ({"lag_seconds": 8 * DAY}, [Code.RETENTION_SHORT]),
        ({"lag_seconds": 31 * DAY}, [Code.RETENTION_SHORT, Code.LOG_RETENTION_SHORT]),
        ({"longest_wait": 4 * DAY}, [Code.RETENTION_SHORT]),
        ({"longest_wait": 3 * DAY}, []),
        ({"retention": None, "longest_wait": 16 * DAY}, [Code.LOG_RETENTION_SHORT]),
        ({"lag_seconds": DAY}, [Code.FALLS_BEHIND]),  # nothing is being published
        ({"lag_seconds": HOUR}, []),
        ({"lag_seconds": DAY, "lag_before": (DAY, DAY)}, []),  # behind, and no more than it was
        ({"lag_seconds": DAY, "lag_before": (10 * DAY, 0.9 * DAY)}, []),  # more, and months away
        ({"lag_seconds": 2 * DAY, "lag_before": (2 * DAY, HOUR)}, [Code.FALLS_BEHIND]),
        # What a text column takes, now and in tables of before.
        ({"longest_text": ("v", 17 * 2**20)}, [Code.TEXT_TOO_LONG]),
        ({"longest_text": ("v", 16 * 2**20), "begun": datetime(2025, 11, 18, tzinfo=UTC)}, []),
        ({"longest_text": ("v", 8_001), "begun": datetime(2025, 11, 17, tzinfo=UTC)}, [Code.TEXT_TOO_LONG]),
        ({"longest_text": ("v", 8_000), "begun": datetime(2025, 11, 17, tzinfo=UTC)}, []),
        ({"longest_text": ("v", 9_000), "begun": None}, []),
        # What Fabric says.
        ({"service": "Snapshotting"}, []),
        ({"service": "Snapshotting", "newest_file_age": 2 * HOUR}, [Code.STUCK_SNAPSHOTTING]),
        ({"service": "", "newest_file_age": 2 * HOUR}, [Code.NEVER_SYNCS]),
        ({"service": ""}, []),
        ({"service": "Failed"}, [Code.TABLE_FAILED]),
        ({"service": "Failed", "service_error": "A column changed its type"}, [Code.TABLE_FAILED]),
        ({"service": "Failed", "service_error": "Invalid file: zero byte file 7"}, [Code.EMPTY_FILE]),
        ({"service": "Failed", "service_error": "No data files found in the folder"}, [Code.EMPTY_TABLE]),
        ({"service": "Stopped", "service_error": "Request was throttled"}, [Code.THROTTLED]),
        ({"service": "Stopped", "service_error": "The item owner is disabled"}, [Code.OWNER_LEFT]),
        ({"service": "Failed", "service_error": "String or binary data would be truncated"}, [Code.TEXT_TOO_LONG]),
    ],
)
def test_facts_of_a_table(facts: dict[str, Any], codes: list[Code]) -> None:
    assert judged(**facts) == codes


def test_a_text_is_told_with_its_column_and_what_that_holds() -> None:
    early = datetime(2025, 1, 2, tzinfo=UTC)
    old = TableFacts("s.t", "a.b.c", **{**WELL, "longest_text": ("v", 9_000), "begun": early})  # type: ignore[arg-type]
    long = TableFacts("s.t", "a.b.c", **{**WELL, "longest_text": ("v", 2**25)})  # type: ignore[arg-type]
    assert [(each.what, each.weight) for facts in (old, long) for each in judge_table(facts)] == [
        (
            "The column 'v' has a text of 9,000 bytes, and the table is published since 2025-01-02: in tables that"
            " Fabric made before 2025-11-18 a column of text holds 8,000.",
            Weight.SOON,
        ),
        ("The column 'v' has a text of 33,554,432 bytes; a column of text in Fabric holds 16,777,216.", Weight.WRONG),
    ]


@pytest.mark.parametrize(
    ("facts", "code", "remedy"),
    [
        (ZoneFacts("Paused"), Code.MIRRORING_PAUSED, "mirrorfeed fabric resume"),
        (ZoneFacts("Stopped"), Code.MIRRORING_OFF, "mirrorfeed fabric start"),
        (ZoneFacts("Running", None, {}, 2), Code.NEVER_SYNCS, "mirrorfeed fabric stop && mirrorfeed fabric start"),
        (
            ZoneFacts(trouble=FabricUnavailable(action="tell", place="w", reason="429 throttled")),
            Code.THROTTLED,
            "mirrorfeed fabric status",
        ),
        (
            ZoneFacts(trouble=FabricUnavailable(action="tell", place="w", reason="503")),
            Code.UNREACHABLE,
            "mirrorfeed doctor",
        ),
        (ZoneFacts(trouble=TokenRefused(place="w", said="401")), Code.CREDENTIAL, "mirrorfeed preflight"),
        (
            ZoneFacts(trouble=NoPermission(action="tell", place="w", said="403")),
            Code.PERMISSION,
            "mirrorfeed preflight",
        ),
    ],
)
def test_facts_of_the_mirrored_database(facts: ZoneFacts, code: Code, remedy: str) -> None:
    (finding,) = judge_zone(facts)
    assert (finding.code, finding.table, finding.remedy) == (code, "", remedy)


@pytest.mark.parametrize(
    ("lag", "before", "left"),
    [
        (0.0, None, None),
        (2 * DAY, None, 5 * DAY),  # a second a second
        (2 * DAY, (4 * DAY, DAY), 20 * DAY),  # a quarter of that
        (2 * DAY, (DAY, 2 * DAY), None),
        (2 * DAY, (DAY, 3 * DAY), None),
        (9 * DAY, None, 0.0),
    ],
)
def test_when_publication_falls_out_of_what_the_feed_keeps(
    lag: float, before: tuple[float, float] | None, left: float | None
) -> None:
    found = seconds_left(7 * DAY, lag, before)
    assert found == (left if left is None else pytest.approx(left))


def test_a_warning_says_in_how_many_hours() -> None:
    (finding,) = judge_table(TableFacts("s.t", "a.b.c", **{**WELL, "lag_seconds": 6 * DAY}))  # type: ignore[arg-type]
    assert finding.what == (
        "Publication is 6.0 d behind; at the present rate it falls behind what the feed keeps (7.0 d) in 24.0 hours."
    )
    assert finding.weight is Weight.SOON


def test_a_command_takes_hostile_names_as_arguments() -> None:
    facts = TableFacts("s.`x;touch PWNED`", "delta.`/lake/$(id)`", "/lake/$(id)", published=None)
    commands = {code: remedy(code, table=facts.table, source_name=facts.source_name, zone="a b") for code in Code}
    assert commands[Code.GAP] == "mirrorfeed rebuild 's.`x;touch PWNED`'"
    assert commands[Code.ARCHIVE_BLOCKS] == "mirrorfeed archive plan '/lake/$(id)'"
    assert commands[Code.TABLE_FAILED] == "mirrorfeed lint 'a b'"
    assert judge_table(facts)[0].remedy == "mirrorfeed publish 's.`x;touch PWNED`'"
