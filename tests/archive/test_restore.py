from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import restore
from mirrorfeed.archive.plan import Plan, PlannedFile
from mirrorfeed.archive.restore import FilesGone, NotTaken, PlanOfAnotherTable, Progress

START = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    """A plan of some files, all of which are in the archive."""

    def __init__(self, folder: Path, count: int, priority: str = "STANDARD") -> None:
        self.clock = Clock(START)
        self.tiers = FolderTiers(folder / "aside", self.clock)
        self.uris = [f"file:{folder}/t/part-{i:04d}" for i in range(count)]
        self.paths = [Path(uri.removeprefix("file:")) for uri in self.uris]
        (folder / "t").mkdir()
        for path in self.paths:
            path.write_text("data")
        self.tiers.archive(self.uris)
        self.plan = Plan("t", "id-1", 7, None, None, priority, tuple(PlannedFile(uri, 4) for uri in self.uris))


def test_files_are_asked_for_in_batches_of_256(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 600)
    assert restore.ask(scene.plan, scene.tiers) == Progress(ready=0, pending=600, archived=0)
    assert scene.tiers.asked == [256, 256, 88]


def test_a_second_run_asks_for_nothing_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    restore.ask(scene.plan, scene.tiers)
    assert restore.ask(scene.plan, scene.tiers) == Progress(0, 3, 0)
    scene.clock.pass_(15)
    assert restore.ask(scene.plan, scene.tiers) == Progress(3, 0, 0)
    assert scene.tiers.asked == [3]
    assert all(path.read_text() == "data" for path in scene.paths)


def test_a_run_that_was_stopped_goes_on_with_the_rest(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 5)
    half = Plan("t", "id-1", 7, None, None, "HIGH", scene.plan.files[:2])
    restore.ask(half, scene.tiers)
    scene.clock.pass_(1)
    assert restore.ask(scene.plan, scene.tiers) == Progress(ready=2, pending=3, archived=0)
    assert scene.tiers.asked == [2, 3]


def test_progress_is_followed_until_every_file_is_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3, "HIGH")
    seen: list[Progress] = []
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        scene.clock.pass_(seconds / 3600)

    assert restore.follow(scene.plan, scene.tiers, 1200, seen.append, sleep).done
    assert [(each.ready, each.pending) for each in seen] == [(0, 3), (0, 3), (0, 3), (3, 0)]
    assert waited == [1200, 1200, 1200]


def test_a_file_that_is_archived_again_while_others_are_awaited_is_asked_for_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2, "HIGH")
    restore.ask(scene.plan, scene.tiers)
    scene.clock.pass_(1)
    assert restore.progress(scene.plan, scene.tiers).done
    scene.tiers.archive(scene.uris[:1])
    assert restore.ask(scene.plan, scene.tiers) == Progress(ready=1, pending=1, archived=0)


def test_what_a_busy_storage_did_not_take_is_asked_for_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    scene.tiers.refuse = {scene.uris[1]: "503 ServerBusy"}
    assert restore.ask(scene.plan, scene.tiers).pending == 3
    assert scene.tiers.asked == [3, 1]


def test_what_is_never_taken_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    scene.tiers.busy = True
    with pytest.raises(NotTaken) as caught:
        restore.ask(scene.plan, scene.tiers)
    assert str(caught.value) == (
        f"The storage did not take the request for 3 files of t: {scene.uris[0]}: 503 ServerBusy. Run the same command"
        " again later; what is on its way is not asked for twice."
    )


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    gone = f"file:{tmp_path}/t/gone"
    plan = Plan("t", "id-1", 7, None, None, "HIGH", (*scene.plan.files, PlannedFile(gone, 1)))
    with pytest.raises(FilesGone) as caught:
        restore.progress(plan, scene.tiers)
    assert str(caught.value) == (
        f"Files of t that the plan names are not there any more: {gone}. VACUUM may have removed them since: make a new"
        " plan, for a newer version."
    )


@pytest.mark.parametrize(("table_id", "newest"), [("id-2", 9), ("id-1", 6)])
def test_a_plan_of_another_table_is_refused(tmp_path: Path, table_id: str, newest: int) -> None:
    scene = Scene(tmp_path, 1)
    restore.check_table(scene.plan, "id-1", 7)
    with pytest.raises(PlanOfAnotherTable) as caught:
        restore.check_table(scene.plan, table_id, newest)
    assert str(caught.value).startswith("The plan is of another table than t is now: its id was id-1")
    assert str(caught.value).endswith("Make a new plan with `mirrorfeed archive plan`.")
