"""How many rows and bytes a commit changed, by its metrics."""

from __future__ import annotations

import pytest

from mirrorfeed.source.delta_protocol import changed

INSERTED, UPDATED, DELETED = "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"


@pytest.mark.parametrize(
    ("operation", "metrics", "expected"),
    [
        ("WRITE", {"numOutputRows": "5", "numOutputBytes": "700", "numFiles": "1"}, (5, 700)),
        ("STREAMING UPDATE", {"numOutputRows": "7"}, (7, None)),
        ("WRITE", {"numOutputRows": "300005", "numDeletedRows": "5"}, (300_010, None)),  # replaceWhere
        ("WRITE", {"numOutputRows": "0", "numRemovedFiles": "1"}, (None, None)),
        ("WRITE", {}, (None, None)),
        ("UPDATE", {"numUpdatedRows": "2", "numAddedBytes": "300", "numCopiedRows": "900"}, (2, 300)),
        ("DELETE", {"numDeletedRows": "4", "numAddedBytes": "0", "numRemovedFiles": "1"}, (4, 0)),
        ("DELETE", {"numDeletedRows": "0", "numRemovedFiles": "0"}, (0, None)),
        ("DELETE", {"numDeletedRows": "0", "numRemovedFiles": "2"}, (None, None)),
        ("DELETE", {"numRemovedFiles": "2"}, (None, None)),
        ("MERGE", {INSERTED: "1", UPDATED: "2", DELETED: "3", "numTargetBytesAdded": "90"}, (6, 90)),
        ("MERGE", {INSERTED: "1", UPDATED: "2", DELETED: "3", "numOutputRows": "800"}, (6, None)),
        ("OPTIMIZE", {"numAddedBytes": "9999", "numRemovedFiles": "5"}, (0, 0)),
        ("RESTORE", {"numRestoredFiles": "5"}, (None, None)),
        ("TRUNCATE", {"numRemovedFiles": "1"}, (None, None)),
    ],
)
def test_a_commit_says_how_much_it_changed(
    operation: str, metrics: dict[str, str], expected: tuple[int | None, int | None]
) -> None:
    assert changed(operation, metrics) == expected
