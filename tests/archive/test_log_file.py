from __future__ import annotations

import pytest

from mirrorfeed.archive.archived_files import deletion_vector_uri, normalize_uri, to_uri


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("part-0.parquet", "abfss://c@a.net/t/part-0.parquet"),
        ("day=a%20b/part-0.parquet", "abfss://c@a.net/t/day=a b/part-0.parquet"),
        ("day=c%2525d/part-0.parquet", "abfss://c@a.net/t/day=c%25d/part-0.parquet"),
        ("abfss://c@a.net/other/a%20b", "abfss://c@a.net/other/a b"),
        ("file:///tmp/other", "file:/tmp/other"),
    ],
)
def test_paths_in_the_log_are_decoded_once(path: str, uri: str) -> None:
    assert to_uri("abfss://c@a.net/t/", path) == uri


@pytest.mark.parametrize("uri", ["file:/tmp/t", "file:///tmp/t"])
def test_local_uris_are_normalized(uri: str) -> None:
    assert normalize_uri(uri) == "file:/tmp/t"


@pytest.mark.parametrize(
    ("kind", "text", "file"),
    [
        ("u", "okd*IM=ID1H!W^dC4Tgk", "file:/t/deletion_vector_4b69616b-97c8-410a-884d-fbe57667439d.bin"),
        ("u", "aBokd*IM=ID1H!W^dC4Tgk", "file:/t/aB/deletion_vector_4b69616b-97c8-410a-884d-fbe57667439d.bin"),
        ("p", "file:///u/deletion%20vector.bin", "file:/u/deletion vector.bin"),
        ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
    ],
)
def test_deletion_vector_file_is_resolved(kind: str, text: str, file: str | None) -> None:
    assert deletion_vector_uri("file:/t", {"storageType": kind, "pathOrInlineDv": text}) == file
