from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from fixtures.onelake import CLIENT, SECRET, TENANT, WORKSPACE, OneLake
from fixtures.onelake.blobs import Blob
from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import restore
from mirrorfeed.archive.data_files import DataFile, NeededFiles
from mirrorfeed.archive.errors import (
    plan_of_another_table,
    planned_files_deleted,
    restore_cannot_last,
    restore_rejected,
    restore_tier_not_supported,
)
from mirrorfeed.archive.restore import Restoring, check_table
from mirrorfeed.archive.restore_plan import Plan, Terms, estimate
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tier_store import Priority, Tier
from tests.raised import raises

Speed = Literal["STANDARD", "HIGH"]
START = datetime(2026, 1, 1, tzinfo=UTC)
NO_SPARK: Any = None
TABLE = NeededFiles("t", "id-1", "file:/t", 7, ())


def plan_of(files: Sequence[DataFile], priority: Speed = "STANDARD") -> Plan:
    return Plan((replace(TABLE, files=tuple(files)),), priority)


class Scene:
    """A restore plan of some files, all of them archived."""

    def __init__(self, folder: Path, count: int, priority: Speed = "STANDARD", copies: bool = False) -> None:
        self.clock = Clock(START)
        self.tiers = FolderTiers(folder / "aside", self.clock, copies)
        self.uris = [f"file:{folder}/t/part-{i:04d}" for i in range(count)]
        self.paths = [Path(uri.removeprefix("file:")) for uri in self.uris]
        (folder / "t").mkdir()
        for path in self.paths:
            path.write_text("data")
        self.tiers.archive(self.uris)
        self.plan = plan_of([DataFile(uri, 4) for uri in self.uris], priority)

    def restore(self, patched: pytest.MonkeyPatch, terms: Terms) -> Restoring:
        """Request the files of the plan as `mirrorfeed archive restore` does, without Spark."""
        patched.setattr(restore, "check_plan", lambda *_: None)
        patched.setattr(restore, "tiers_of", lambda _: self.tiers)
        return restore.restore(lambda: NO_SPARK, estimate(self.plan, self.tiers, None, START), terms)


def test_all_archived_files_are_requested(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 600)
    assert restore.request_files(scene.plan, scene.tiers) == Restoring(scene.plan.table, 0, 600, 0)
    assert scene.tiers.requests == [600]


def test_second_run_requests_no_file_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    restore.request_files(scene.plan, scene.tiers)
    assert restore.request_files(scene.plan, scene.tiers) == Restoring(scene.plan.table, 0, 3, 0)
    scene.clock.pass_(15)
    assert restore.request_files(scene.plan, scene.tiers) == Restoring(scene.plan.table, 3, 0, 0)
    assert scene.tiers.requests == [3]
    assert all(path.read_text() == "data" for path in scene.paths)


def test_interrupted_run_continues_with_the_remaining_files(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 5)
    half = plan_of(scene.plan.files[:2], "HIGH")
    restore.request_files(half, scene.tiers)
    scene.clock.pass_(1)
    assert restore.request_files(scene.plan, scene.tiers) == Restoring(scene.plan.table, 2, 3, 0)
    assert scene.tiers.requests == [2, 3]


def test_progress_is_followed_until_every_file_is_restored(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3, "HIGH")
    seen: list[Restoring] = []
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        scene.clock.pass_(seconds / 3600)

    assert restore.request_and_wait(scene.plan, scene.tiers, 1200, report=seen.append, sleep=sleep).done
    assert [(each.ready, each.pending) for each in seen] == [(0, 3), (0, 3), (0, 3), (3, 0)]
    assert waited == [1200, 1200, 1200]


def test_file_archived_again_during_the_restore_is_requested_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2, "HIGH")
    restore.request_files(scene.plan, scene.tiers)
    scene.clock.pass_(1)
    assert restore.read_progress(scene.plan, scene.tiers).done
    scene.tiers.archive(scene.uris[:1])
    assert restore.request_files(scene.plan, scene.tiers) == Restoring(scene.plan.table, 1, 1, 0)


def test_file_refused_by_busy_storage_is_requested_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    scene.tiers.refuse = {scene.uris[1]: "503 ServerBusy"}
    assert restore.request_files(scene.plan, scene.tiers).pending == 3
    assert scene.tiers.requests == [3, 1]


def test_permanently_refused_files_are_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    scene.tiers.busy = True
    with raises(restore_rejected) as caught:
        restore.request_files(scene.plan, scene.tiers)
    assert list(caught.value.refused.values()) == ["503 ServerBusy"] * 3
    assert (caught.value.table, caught.value.computed["files"]) == ("t", "3 files")


def test_missing_files_are_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    missing = f"file:{tmp_path}/t/gone"
    plan = plan_of([*scene.plan.files, DataFile(missing, 1)], "HIGH")
    with raises(planned_files_deleted) as caught:
        restore.read_progress(plan, scene.tiers)
    assert (caught.value.table, caught.value.uris) == ("t", [missing])


@pytest.mark.parametrize(("table_id", "newest"), [("id-2", 9), ("id-1", 6)])
def test_plan_of_another_table_is_refused(table_id: str, newest: int) -> None:
    check_table(TABLE, "id-1", 7)
    with raises(plan_of_another_table) as caught:
        check_table(TABLE, table_id, newest)
    assert str(caught.value).startswith("t is no longer the table of the plan: the id of the table was id-1")


def test_files_are_restored_to_the_requested_tier(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    restore.request_files(scene.plan, scene.tiers, Terms(Tier.COOL))
    assert scene.tiers.to is Tier.COOL


def test_copies_expire_after_the_requested_days_and_can_be_extended(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2, "HIGH", copies=True)
    week = Terms(keep_days=7)
    restore.request_files(scene.plan, scene.tiers, week, scene.clock())
    scene.clock.pass_(1)
    assert restore.request_files(scene.plan, scene.tiers, Terms(keep_days=5), scene.clock()).done
    assert scene.tiers.requests == [2]
    scene.clock.pass_(48)
    assert restore.request_files(scene.plan, scene.tiers, week, scene.clock()).done
    assert scene.tiers.requests == [2, 2]
    scene.clock.pass_(6 * 24)
    assert restore.read_progress(scene.plan, scene.tiers).done
    scene.clock.pass_(24)
    assert restore.read_progress(scene.plan, scene.tiers) == Restoring(scene.plan.table, 0, 0, 2)


def test_days_cannot_be_promised_if_a_rule_archives_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, 1)
    with raises(restore_cannot_last) as caught:
        scene.restore(monkeypatch, Terms(keep_days=7))
    assert scene.tiers.requests == []
    assert (caught.value.table, caught.value.days) == ("t", 7)


def test_restored_copies_have_only_one_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, 1, copies=True)
    with raises(restore_tier_not_supported) as caught:
        scene.restore(monkeypatch, Terms(Tier.COOL))
    assert scene.tiers.requests == []
    assert caught.value.to is Tier.COOL
    scene.restore(monkeypatch, Terms())
    assert scene.tiers.requests == [1]


RATES = Prices.model_validate(
    {
        "currency": "EUR",
        "standard": {"per_gib": 2**30, "per_10k_files": 10_000},
        "high": {"per_gib": 0, "per_10k_files": 0},
        "stored": {"hot": 2**30 * 30, "cool": 2**30, "archive": 0},
    }
)


def test_costs_are_estimated_before_any_request(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)  # of four bytes each
    assert restore.describe_restore_costs(scene.plan, scene.tiers, Terms(), None, START) is None
    assert restore.describe_restore_costs(scene.plan, scene.tiers, Terms(), RATES, START) == (
        "Estimated costs: 8.00 EUR for retrieval, 2.00 EUR for requests, 8.00 EUR for 1 day in hot, 18.00 EUR in total;"
        " without a price: archiving again."
    )
    scene.tiers.copies = True
    assert restore.describe_restore_costs(scene.plan, scene.tiers, Terms(keep_days=2), RATES, START) == (
        "Estimated costs: 8.00 EUR for retrieval, 2.00 EUR for requests, 16.00 EUR for 2 days in hot, 26.00 EUR in"
        " total."
    )
    assert scene.tiers.requests == []


@pytest.mark.parametrize("copies", [False, True])
def test_plan_and_restore_estimate_the_same_costs(tmp_path: Path, copies: bool) -> None:
    scene = Scene(tmp_path, 3, copies=copies)
    vector, rates = scene.uris[2], RATES.model_copy(update={"archiving": 7.0})
    scene.tiers.restore([vector], Priority.HIGH, days=30)
    scene.clock.pass_(24)
    plan = plan_of([DataFile(scene.uris[0], 4), DataFile(scene.uris[1], 4, deletion_vector=vector)])
    now = scene.clock()
    planned = estimate(plan, scene.tiers, rates, now)
    assert (planned.files, planned.bytes) == (2, 8)
    assert restore.describe_restore_costs(plan, scene.tiers, Terms(), rates, now) in planned.remarks()
    assert f"{planned.cost:.2f} EUR in total" in planned.remarks()[0]
    unknown = estimate(plan, None, rates, now)
    assert (unknown.files, unknown.cost) == (3, 8 + 3)
    assert "contains only the retrieval" in unknown.remarks()[0]


def test_next_steps_depend_on_the_storage(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    steps = restore.next_steps("t", scene.tiers, Terms())
    assert "archives these files again within about a day" in steps
    assert "`mirrorfeed archive rule t --merge EXPORTED --paused`" in steps
    scene.tiers.copies = True
    assert restore.next_steps("t", scene.tiers, Terms(keep_days=1)).startswith("The restored copies expire 1 day after")


CARRIED_OUT = """
import sys
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.archive.restore import request_and_wait
from mirrorfeed.runtime.credentials import Secret, ServicePrincipal
from mirrorfeed.storage.request_retries import RetryLimits
from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers
plan, endpoint, container, root, ca_bundle, tenant, client, secret, authority = sys.argv[1:]
who = ServicePrincipal(tenant, client, Secret(env=secret), authority)
request_and_wait(Plan.load(plan), AzureTiers(endpoint, container, root, who, ca_bundle, RetryLimits(seconds=5)), 0.02)
"""


@pytest.mark.process
def test_killed_restore_is_resumed(onelake: OneLake, tmp_path: Path) -> None:
    root, store, blobs = (
        f"abfss://{WORKSPACE}@lake.dfs.core.windows.net/",
        onelake.store_elsewhere(),
        onelake.server.blobs,
    )
    names = [f"t/part-{number:04d}" for number in range(600)]
    blobs.blobs |= {name: Blob("Archive") for name in names}
    blobs.page = 5000
    plan = plan_of([DataFile(root + name, 1) for name in names])
    plan.save(str(tmp_path / "plan.json"))
    place = [str(tmp_path / "plan.json"), store.endpoint, WORKSPACE, root, str(store.ca_bundle)]
    login = [TENANT, CLIENT, SECRET, f"https://{onelake.address}"]
    running: list[subprocess.Popen[bytes]] = []

    def carry_out() -> tuple[int, bytes]:
        running.append(subprocess.Popen([sys.executable, "-c", CARRIED_OUT, *place, *login], stderr=subprocess.PIPE))
        errors = running[-1].communicate(timeout=120)[1]
        return running[-1].returncode, errors

    blobs.before_answer = lambda: running[-1].kill()  # the first batch took effect, but its response is lost
    assert carry_out()[0] == -signal.SIGKILL
    assert blobs.batches == [256]
    blobs.before_answer = blobs.arrive
    assert carry_out() == (0, b"")
    assert {blob.tier for blob in blobs.blobs.values()} == {"Hot"}
    assert blobs.batches == [256, 256, 88]
