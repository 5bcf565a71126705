"""What commits tell of the rows that they changed."""

from __future__ import annotations

import pytest

from mirrorfeed.feed.metrics import rows_at_most


@pytest.mark.parametrize(
    ("operation", "parameters", "metrics", "rows"),
    [
        ("WRITE", {"mode": "Append"}, {"numOutputRows": "7"}, 7),
        ("WRITE", {"mode": "Overwrite"}, {"numOutputRows": "7"}, None),
        ("WRITE", {"mode": "Append"}, {}, None),
        ("STREAMING UPDATE", {"outputMode": "Append"}, {"numOutputRows": "7"}, 7),
        ("STREAMING UPDATE", {"outputMode": "Complete"}, {"numOutputRows": "7"}, None),
        ("UPDATE", {}, {"numUpdatedRows": "3", "numCopiedRows": "90"}, 3),
        ("DELETE", {}, {"numDeletedRows": "3", "numRemovedFiles": "1"}, 3),
        ("DELETE", {}, {"numDeletedRows": "0", "numRemovedFiles": "0"}, 0),
        ("DELETE", {}, {"numDeletedRows": "0", "numRemovedFiles": "2"}, None),
        ("DELETE", {}, {"numRemovedFiles": "2"}, None),
        (
            "MERGE",
            {},
            {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "4"}
            | {"numOutputRows": "900"},
            7,
        ),
        ("OPTIMIZE", {}, {"numRemovedFiles": "5"}, 0),
        ("RESTORE", {}, {"numRestoredFiles": "5"}, None),
        ("CREATE TABLE AS SELECT", {}, {"numOutputRows": "7"}, None),
        ("TRUNCATE", {}, {"numRemovedFiles": "1"}, None),
    ],
)
def test_rows_are_known_to_be_few_where_a_commit_counts_all_that_it_changed(
    operation: str, parameters: dict[str, str], metrics: dict[str, str], rows: int | None
) -> None:
    assert rows_at_most(operation, parameters, metrics) == rows
