"""Facts about mirrors and the SQL endpoint, without Spark. An unknown fact has a reason."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.mirror.fabric.status_and_settings import TableState, TableSync
from mirrorfeed.monitor.freshness import Step, read_endpoint, read_mirror

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
TABLES = "tables: [{source: ./orders, target: sales.orders, keys: [id]}]\n"


def commit(log: Path, version: int, minutes: float) -> None:
    log.mkdir(parents=True, exist_ok=True)
    file, moment = log / f"{version:020d}.json", (NOW - timedelta(minutes=minutes)).timestamp()
    file.write_text("{}")
    os.utime(file, (moment, moment))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\n{TABLES}")
    return load(tmp_path / "mirrorfeed.yml")


@pytest.mark.parametrize("below", ["sales/orders", ""])
def test_mirror_in_a_folder_is_as_fresh_as_its_newest_commit(config: Config, tmp_path: Path, below: str) -> None:
    log = tmp_path / "mirror" / below / "_delta_log"
    commit(log, 3, 20)
    commit(log, 4, 5)
    (log / "00000000000000000004.checkpoint.parquet").write_bytes(b"")
    found = read_mirror(config, config.tables[0], mirror=str(tmp_path / "mirror"))
    assert found.times == {Step.MIRRORED: NOW - timedelta(minutes=5)}
    assert found.unknown == {Step.QUERYABLE: "the SQL endpoint was not read"}


def test_mirror_without_the_table_has_no_unknown_step(config: Config, tmp_path: Path) -> None:
    found = read_mirror(config, config.tables[0], mirror=str(tmp_path))
    assert Step.MIRRORED not in {**found.times, **found.unknown}


def test_mirror_without_a_location_is_unknown(config: Config) -> None:
    found = read_mirror(config, config.tables[0])
    assert found.unknown[Step.MIRRORED] == f"The folder with the mirror of {config.landing_zone} is unknown"


@pytest.fixture
def in_onelake(onelake: OneLake, tmp_path: Path) -> Config:
    (tmp_path / "mirrorfeed.yml").write_text(onelake.configuration(f"onelake://{WORKSPACE}/{DATABASE}") + TABLES)
    return load(tmp_path / "mirrorfeed.yml")


def test_mirror_in_onelake_is_read_next_to_the_landing_zone(onelake: OneLake, in_onelake: Config) -> None:
    assert Step.MIRRORED not in read_mirror(in_onelake, in_onelake.tables[0]).times
    onelake.files.put_blob(f"{DATABASE}/Tables/sales/orders/_delta_log/{1:020d}.json", b"{}", if_absent=True)
    found = read_mirror(in_onelake, in_onelake.tables[0])
    assert abs((found.times[Step.MIRRORED] - datetime.now(UTC)).total_seconds()) < 3600
    assert Step.MIRRORED not in found.unknown


def test_fabric_sync_time_after_the_newest_commit_is_used(onelake: OneLake, in_onelake: Config) -> None:
    late = datetime(2999, 1, 1, tzinfo=UTC)
    state = TableState("sales.orders", "Replicating", synced=late)
    assert read_mirror(in_onelake, in_onelake.tables[0], state).times[Step.MIRRORED] == late


def test_unreadable_mirror_is_unknown(onelake: OneLake, in_onelake: Config) -> None:
    onelake.server.forbidden = True
    found = read_mirror(in_onelake, in_onelake.tables[0])
    assert "does not allow" in found.unknown[Step.MIRRORED] or "may not" in found.unknown[Step.MIRRORED]


def test_endpoint_sync_is_used_and_a_missing_one_is_unknown(onelake: OneLake, in_onelake: Config) -> None:
    onelake.fabric.syncs = [{"tableName": "orders", "status": "Failure", "lastSuccessfulSyncDateTime": NOW.isoformat()}]
    syncs = read_endpoint(in_onelake)
    assert syncs == [TableSync("orders", "Failure", NOW)]
    found = read_mirror(in_onelake, in_onelake.tables[0], syncs=syncs)
    assert found.times == {Step.QUERYABLE: NOW}
    silent = read_mirror(in_onelake, in_onelake.tables[0], syncs=[])
    assert silent.unknown == {Step.QUERYABLE: "no table of the SQL endpoint has exactly this name"}


def test_unreadable_endpoint_is_unknown(onelake: OneLake, in_onelake: Config, config: Config) -> None:
    onelake.fabric.endpoint = None
    assert str(read_endpoint(in_onelake)).startswith("Fabric reports no SQL endpoint of the mirrored database")
    assert str(read_endpoint(config)).endswith("is not in a mirrored database of Fabric")
