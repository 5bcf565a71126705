"""Reading the exported lifecycle policy of a storage account."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorfeed.archive.errors import invalid_lifecycle_policy
from mirrorfeed.archive.lifecycle import read_policy
from tests.raised import raises


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_policy_is_read_in_the_encodings_of_each_shell(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"name": "é"}', encoding=encoding)
    assert read_policy(str(file)) == {"name": "é"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 200_000, b"9" * 5000])
def test_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "policy.json"
    file.write_bytes(content)
    with raises(invalid_lifecycle_policy):
        read_policy(str(file))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with raises(invalid_lifecycle_policy, match="No such file or directory"):
        read_policy(str(tmp_path / "policy.json"))
