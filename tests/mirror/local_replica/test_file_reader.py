"""Damaged data files: reading each returns rows or raises an error that names the file."""

from __future__ import annotations

from contextlib import suppress

import pyarrow
import pytest

from mirrorfeed.errors import TerminalError
from mirrorfeed.lint.specification import Settings
from mirrorfeed.mirror.errors import file_not_readable
from mirrorfeed.mirror.local_replica.file_reader import read_rows
from tests.raised import raises
from tests.support.damaged_parquet import damaged, whole_files

SETTINGS = Settings(keys=("id",))
CRASHES = (699, 834, 1997)
"""Damage that aborts the Parquet library when `lint` reads column types in its child process."""


def test_damaged_parquet_file_raises_no_library_error() -> None:
    files = whole_files()
    for seed in range(100):
        with suppress(TerminalError):
            read_rows(damaged(files, seed), "1.parquet", "orders/1.parquet", SETTINGS)


@pytest.mark.skipif(int(pyarrow.__version__.split(".")[0]) < 20, reason="older releases read some of these files")
@pytest.mark.parametrize("seed", CRASHES)
def test_file_that_crashes_the_library_is_refused_by_name(seed: int) -> None:
    with raises(file_not_readable, match=r"orders/1\.parquet"):
        read_rows(damaged(whole_files(), seed), "1.parquet", "orders/1.parquet", SETTINGS)
