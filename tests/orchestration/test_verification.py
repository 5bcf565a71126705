"""Verification of changed keys since the last verification, through the command: what it finds, and where it stops."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.mirror.errors import full_verification_required, mirror_moved
from mirrorfeed.orchestration import verify_and_repair
from tests.orchestration.test_verify_and_repair import Shop
from tests.support.delta import DeltaTable

MODES = {
    "soft delete": "delivery: soft_delete",
    "append": "delivery: append",
    "delimited text": "format: delimited, delimited: {schema_definition: false}",
    "selected": "where: id < 90, rename: {id: number}",
}


def verified(shop: Shop, *arguments: str) -> dict[str, Any]:
    configured = ("--mirror", str(shop.folder / "mirror"), "--config", str(shop.folder / "mirrorfeed.yml"))
    output = CliRunner().invoke(main, ["verify", *arguments, *configured, "--json"]).stdout
    (found,) = json.loads(output)["rows"]
    return dict(found)


def error_of(found: dict[str, Any]) -> str:
    return (found["error"] or {}).get("code", "")


@pytest.fixture(scope="module")
def verified_shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Rows 1 to 4, verified at version 1. Then row 1 is updated, row 2 deleted, and row 5 inserted: version 4."""
    folder = tmp_path_factory.mktemp("verified")
    shop = Shop(DeltaTable(spark, folder / "source"), folder, "id")
    shop.table.insert(1, 2, 3, 4)
    shop.run("publish")
    shop.replicate()
    assert error_of(verified(shop, "--since-last")) == full_verification_required.code
    full = verified(shop)
    assert (full["equal"], full["verified_through"], full["since_version"]) == (True, 1, None)
    shop.table.sql("UPDATE {} SET v = 'changed' WHERE id = 1")
    shop.table.sql("DELETE FROM {} WHERE id = 2")
    shop.table.insert(5)
    shop.run("publish")
    waiting = verified(shop, "--since-last")
    assert (waiting["equal"], waiting["version"], waiting["verified_through"]) == (True, 1, 1)
    assert "; not yet at a newer version; published up to version 4, 1 file not consumed" in waiting["what"]
    return shop


def test_mark_moves_only_over_what_is_equal_and_a_sample_finds_differences_in_unchanged_rows(
    verified_shop: Shop, tmp_path: Path
) -> None:
    """`test_verification_histories` plants differences at random."""
    shop = Shop.copied(verified_shop, tmp_path)
    shop.spoil("INSERT INTO {} VALUES (2, 'still here')", "DELETE FROM {} WHERE id = 5")
    found = verified(shop, "--since-last")
    assert (found["equal"], found["verified_through"]) == (False, 1)
    assert {each["key"] for each in found["differences"]} == {"id = 2", "id = 5"}
    shop.spoil("DELETE FROM {} WHERE id = 2", "INSERT INTO {} VALUES (5, 'v5')")
    shop.spoil("UPDATE {} SET v = 'wrong' WHERE id = 3")  # only a full verification or a sample shows it
    found = verified(shop, "--since-last")
    names = ("equal", "since_version", "version", "verified_through", "compared_keys", "source_rows", "mirror_rows")
    assert [found[name] for name in names] == [True, 1, 4, 4, 3, 4, 4]
    assert found["what"] == "equal at version 4: 3 keys since version 1 compared, 4 rows counted"
    again = verified(shop, "--since-last")
    assert [again[name] for name in names] == [True, 4, 4, 4, 0, 4, 4]
    found = verified(shop, "--since-last", "--sample", "100")
    assert (found["equal"], found["differing"], found["verified_through"]) == (False, 1, None)
    assert found["differences"] == [{"key": "id = 3", "column": "v", "source": "v3", "mirror": "wrong"}]


@pytest.mark.parametrize(
    "mode", ["append", *(pytest.param(each, marks=pytest.mark.slow) for each in MODES if each != "append")]
)
def test_changes_are_verified_in_each_mode(
    spark: SparkSession, tmp_path: Path, mode: str, counted: Counter[str]
) -> None:
    shop = Shop(DeltaTable(spark, tmp_path / "source"), tmp_path, "id")
    config = shop.folder / "mirrorfeed.yml"
    config.write_text(config.read_text(encoding="utf-8").replace("}\n", f", {MODES[mode]}}}\n"), encoding="utf-8")
    shop.table.insert(1, 2, 3, 4, 95)
    shop.run("publish")
    shop.replicate()
    assert verified(shop)["verified_through"] == 1
    shop.table.sql("UPDATE {} SET v = 'changed' WHERE id = 1")
    shop.table.sql("UPDATE {} SET id = 6 WHERE id = 2")
    shop.table.sql("DELETE FROM {} WHERE id = 3")
    shop.table.insert(3, 7, 97)
    shop.table.sql("DELETE FROM {} WHERE id = 7")
    shop.run("publish")
    shop.replicate()
    found = verified(shop, "--since-last")
    assert (found["equal"], found["version"], found["verified_through"]) == (True, 6, 6), found
    key = "number" if mode == "selected" else "id"
    shop.spoil(f"DELETE FROM {{}} WHERE {key} = 6")
    assert verified(shop, "--since-last")["equal"] is False
    counted["modes whose changes are verified"] += 1


def test_changes_that_cannot_be_read_need_a_full_verification(verified_shop: Shop, tmp_path: Path) -> None:
    shop = Shop.copied(verified_shop, tmp_path)
    shutil.rmtree(shop.table.path / "_change_data")
    found = verified(shop, "--since-last")
    assert error_of(found) == full_verification_required.code
    assert verified(shop)["verified_through"] == 4
    shop.spoil("DELETE FROM {} WHERE id = 3")  # only the number of rows shows it
    found = verified(shop, "--since-last")
    assert (found["equal"], found["verified_through"]) == (False, None)


def test_mirror_that_moves_is_compared_again(
    verified_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.copied(verified_shop, tmp_path)
    shop.table.insert(6)
    shop.run("publish")
    compare, calls = verify_and_repair.verify_at, list[int]()

    def moving(*args: Any, **kwargs: Any) -> Any:
        if not calls:
            shop.replicate()
        calls.append(1)
        return compare(*args, **kwargs)

    monkeypatch.setattr(verify_and_repair, "verify_at", moving)
    found = verified(shop)
    assert (len(calls), found["equal"], found["version"], found["verified_through"]) == (2, True, 5, 5)
    monkeypatch.setattr(verify_and_repair._Verification, "_has_moved", lambda _: True)
    shop.spoil("DELETE FROM {} WHERE id = 1")
    found = verified(shop)
    assert (error_of(found), found["verified_through"]) == (mirror_moved.code, 5)


def test_quick_verification_compares_the_numbers_of_rows(verified_shop: Shop, tmp_path: Path) -> None:
    shop = Shop.copied(verified_shop, tmp_path)
    quick = verified(shop, "--quick")
    assert (quick["equal"], quick["what"]) == (True, "as many rows at version 4, 4 counted")
    shop.spoil("UPDATE {} SET v = 'wrong' WHERE id = 1")  # out of reach
    shop.spoil("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert verified(shop, "--quick")["equal"] is True
    shop.spoil("DELETE FROM {} WHERE id = 3")
    different = verified(shop, "--quick")
    assert different["what"] == "DIFFERENT at version 4: 4 rows in the source, 3 in the mirror"
    assert (different["equal"], different["verified_through"]) == (False, None)
    for file in (shop.folder / "mirror/s/t/_delta_log").glob("*.json"):
        file.write_text(re.sub(r',"stats":"(?:[^"\\]|\\.)*"', "", file.read_text(encoding="utf-8")), encoding="utf-8")
    unknown = verified(shop, "--quick")
    assert unknown["equal"] is None
    assert unknown["what"] == "not known at version 4: the log of the mirror has files without statistics"
