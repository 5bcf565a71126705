"""Output of `mirrorfeed lint`, for people and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.cli import main
from mirrorfeed.landing.names import data_name
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.defects import DEFECTS
from tests.support.zones import CUSTOMERS, put, write_clean_zone

pytestmark = pytest.mark.process


@pytest.fixture
def zone(tmp_path: Path) -> FolderStore:
    store = FolderStore(str(tmp_path))
    write_clean_zone(store)
    return store


def _lint(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["lint", *arguments])


def test_json_output_has_code_severity_file_and_fix(zone: FolderStore) -> None:
    put(zone, "readme.txt", "hello")
    result = _lint(zone.root, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "ok": False,
        "rows": [
            {
                "code": "MF101",
                "severity": "warning",
                "file": "readme.txt",
                "what": "The file is not in the folder of a table, so Fabric does not read it.",
                "next": "Move the file into the folder of its table, or delete it.",
            }
        ],
        "notes": [],
    }


def test_lint_with_only_advice_exits_with_zero(zone: FolderStore) -> None:
    next(defect for defect in DEFECTS if defect.code == "MF551").seed(zone)
    result = _lint(zone.root)
    assert result.exit_code == 0
    assert result.stdout.startswith("13 tables: 1 advice\n")


def test_lint_does_not_import_spark(zone: FolderStore) -> None:
    script = f"""
import sys
from mirrorfeed.cli import main
try:
    main(["lint", {zone.root!r}])
finally:
    assert not [name for name in sys.modules if name.split(".")[0] in ("pyspark", "delta", "py4j")]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "12 tables: no findings\n"), done.stderr


def test_onelake_zone_is_read_with_the_configured_credential(onelake: OneLake, tmp_path: Path) -> None:
    file, address = tmp_path / "mirrorfeed.yml", f"onelake://{WORKSPACE}/{DATABASE}"
    file.write_text(onelake.configuration() + "tables: [{source: a, target: b}]\n", encoding="utf-8")
    write_clean_zone(onelake.store())
    for shown in (address, f"https://onelake.dfs.fabric.microsoft.com/{WORKSPACE}/{DATABASE}/Files/LandingZone"):
        result = _lint(shown, "--config", str(file))
        assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "12 tables: no findings")
        assert "MF3408: The landing zone has published tables that" in result.stdout  # it has no entry for them

    onelake.store().create(f"{CUSTOMERS}/{data_name(9)}", b"")
    result = _lint(address, "--config", str(file))
    assert result.exit_code == 1
    assert f"sales.schema/customers/{data_name(9)} " in result.stdout


def test_onelake_address_without_ids_is_refused() -> None:
    result = _lint("onelake://sales/orders")
    assert result.exit_code == 1
    assert result.output.startswith(
        "Error MF1105: The landing zone 'onelake://sales/orders' does not name a workspace and a mirrored database by"
    )
