"""The notebooks, run from a folder with the layout and settings of a deployment."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from nbmake.nb_run import NotebookRun
from pyspark.sql import SparkSession

from fixtures.demo.shop import Shop
from fixtures.shared_session import offered
from tests.support.bundle import merged_files
from tests.support.deployed import NOTEBOOKS, ROOT, build, deploy, layout
from tests.test_wheel import uv

CHANGES = {"archive": "restore", "recovery": "publish", "feed": "enable_cdf", "verify": "repair"}
"""Method that changes something, by notebook. The notebook calls it only if the widget with this name is yes."""

READS = {
    "archive": {"table", "share", "files", "plan", "interval"},
    "recovery": {"status", "dry_run", "doctor"},
    "feed": {"dry_run", "changes"},
    "verify": {"verify"},
}
"""Methods that these notebooks call with every value of the field."""

ERRORS = {"verify": "shop.orders: order_id = 5: status is 'placed' in the source, 'lost' in the mirror"}
"""Error of the last cell, by notebook. One row of the shop differs from its mirror."""

PICTURES = {"feed": 1, "publish": 5, "verify": 1, "recovery": 0, "archive": 0}

FRAMES = {"feed": 6, "publish": 6, "verify": 4, "recovery": 5, "archive": 3}


class Widgets:
    """Widgets with their default values, except for `values`."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def text(self, name: str, default: str, _label: str) -> None:
        self.values.setdefault(name, default)

    def dropdown(self, name: str, default: str, choices: list[str], _label: str) -> None:
        assert default in choices
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        return self.values[name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(uv(), tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    Shop(spark, folder).open()
    return folder


def run(
    notebook: Path, home: Path, spark: SparkSession, patch: pytest.MonkeyPatch, error: str | None = None, **widgets: str
) -> list[dict[str, Any]]:
    """Run a notebook, expect `error`, and return the other outputs by cell.

    The kernel of the notebook shares the JVM of the tests, with its own session.
    """
    shutil.copytree(ROOT / "fixtures/ipython", home / "profile_default/startup")  # IPython writes to its profile folder
    settings = {"IPYTHONDIR": str(home), "PYTHONPATH": str(ROOT), "MIRRORFEED_NOTEBOOK": str(notebook)}
    settings["MIRRORFEED_UV"] = str(uv())
    settings["MIRRORFEED_WIDGETS"] = json.dumps(widgets)
    with patch.context() as patched:
        for variable, value in (settings | offered(spark)).items():
            patched.setenv(variable, value)
        ran = NotebookRun(notebook, default_timeout=300).execute()
    assert (error or "") in (ran.error.trace if ran.error else ""), ran.error
    assert bool(error) == bool(ran.error), ran.error
    outputs = [output for cell in ran.nb.cells for output in cell.get("outputs", ())]
    return [output for output in outputs if output["output_type"] != "error"]


CONFIGURED = [file for file in NOTEBOOKS if file.stem != "quickstart"]
LONG = ("archive", "recovery", "feed", "verify")
"""Notebooks that run only in the long form, because their commands have tests of their own."""


@pytest.mark.parametrize(
    "name", [pytest.param(file.stem, marks=[pytest.mark.slow] if file.stem in LONG else []) for file in CONFIGURED]
)
def test_notebook_runs_with_its_defaults_in_the_deployed_folder(
    spark: SparkSession, name: str, shop: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = shutil.copytree(shop, tmp_path / "root") / "files"
    deploy(files, wheel)
    assert {str(file.relative_to(files)) for file in files.rglob("*") if file.is_file()} == layout(wheel.name)
    outputs = run(files / f"notebooks/{name}.ipynb", tmp_path / "home", spark, monkeypatch, ERRORS.get(name))
    printed = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    first = f"mirrorfeed {wheel.name.split('-')[1]}, {files}/mirrorfeed.yml, landing zone {tmp_path}/root/landing"
    assert printed.splitlines()[0] == first
    assert str(outputs).count("<svg") == PICTURES[name]
    assert not (files / "elsewhere").exists()
    assert "Traceback" not in str(outputs)
    assert str(outputs).count('class="mirrorfeed"') == FRAMES[name]
    assert [output for output in outputs if _shown_as_python(output)] == []
    if name in CHANGES:
        assert f"set the field `{CHANGES[name]}` to yes" in printed
    if name == "feed":
        assert "No rows were changed" not in str(outputs)  # the feed of the shop was on from its first row


def test_quickstart_ends_with_an_equal_mirror_without_a_configuration(
    spark: SparkSession, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Path(shutil.copy(ROOT / "notebooks/quickstart.ipynb", tmp_path))
    fields = {"wheel": str(wheel), "folder": str(tmp_path), "clean_up": "yes"}
    outputs = run(notebook, tmp_path / "home", spark, monkeypatch, **fields)
    shown = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert [("snapshot" in each, "equal" in each) for each in shown] == [
        (True, False),
        (False, True),
        (False, False),
        (False, True),
    ]
    (folder,) = tmp_path.glob("20*")
    rows = spark.read.format("delta").load(str(folder / "mirror/shop/orders")).orderBy("order_id").collect()
    assert [tuple(map(str, row)) for row in rows] == [
        ("1", "paid", "9.50"),
        ("3", "sent", "7.25"),
        ("4", "new", "12.00"),
    ]
    assert not spark.catalog.tableExists("mirrorfeed_quickstart")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["feed", "recovery", "verify"])
def test_notebook_makes_the_change_if_its_field_says_yes(
    spark: SparkSession, shop: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Files in a folder cannot be restored, so `archive` is left out."""
    files = shutil.copytree(shop, tmp_path / "root") / "files"
    deploy(files, wheel)
    notebook, field = files / f"notebooks/{name}.ipynb", CHANGES[name]
    outputs = run(notebook, tmp_path / "home", spark, monkeypatch, ERRORS.get(name), **{field: "yes"})
    assert f"set the field `{field}` to yes" not in str(outputs)
    match name:
        case "feed":
            assert "on already" in str(outputs)
        case "recovery":
            assert str(outputs).count('class="mirrorfeed"') == FRAMES["recovery"] + 1
        case "verify":  # the repair adds a record to the first one
            assert len([*tmp_path.glob("root/landing/shop.schema/orders/_mirrorfeed/*/*2.json")]) == 1


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("answer", [None, "no", "yes"])
def test_notebook_changes_nothing_unless_its_field_says_yes(
    monkeypatch: pytest.MonkeyPatch, name: str, answer: str | None
) -> None:
    """All other calls of these notebooks only read."""
    method, feed = CHANGES[name], MagicMock()
    feed.verify.return_value = compared = MagicMock()
    compared.__iter__.return_value = [SimpleNamespace(table="a", equal=True), different := MagicMock(equal=False)]
    widgets = Widgets({} if answer is None else {method: answer})
    monkeypatch.setitem(sys.modules, "mirrorfeed", SimpleNamespace(deployed=lambda *_: feed))
    names = {"dbutils": SimpleNamespace(widgets=widgets), "spark": None}
    cells = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for each in code[2:]:  # after the installation
        exec(each, names)
    assert widgets.values[method] == (answer or "no")
    called_objects = [feed.archive, feed.archive.table.return_value] if name == "archive" else [feed]
    calls = {call[0] for each in called_objects for call in each.method_calls if "." not in call[0]}
    assert calls == READS[name] | ({method} if answer == "yes" else set())
    if name == "recovery":  # one of the results fails the cell
        checked = feed.publish if answer == "yes" else feed.dry_run
        checked.return_value.check.assert_called_once()
    if name == "feed":
        checked = feed.enable_cdf if answer == "yes" else feed.dry_run
        checked.return_value.check.assert_called_once()
    if name == "verify":
        compared.check.assert_called_once()
        assert names["found"] is different
        assert [call.args for call in feed.repair.call_args_list] == [(different.table,)] * (answer == "yes")


def _shown_as_python(output: dict[str, Any]) -> bool:
    """Whether an output shows only a Python dictionary or an object's default representation."""
    data = output.get("data", {})
    return "text/html" not in data and str(data.get("text/plain", "")).startswith(("['{", "['<"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_requires_the_environment_version_of_the_bundle(notebook: Path) -> None:
    bundle = merged_files()
    metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
    environment = metadata["application/vnd.databricks.v1+notebook"]["environmentMetadata"]
    assert environment["environment_version"] == bundle["variables"]["environment_version"]["default"]
