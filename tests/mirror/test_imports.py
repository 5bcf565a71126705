"""lint, the replica and `verify` import nothing from the publisher, so that their agreement with it is evidence."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import mirrorfeed
from mirrorfeed.lint.column_rules import NO_KEY
from mirrorfeed.mirror import local_replica

ROOT = Path(mirrorfeed.__file__).parent
READERS = {f"lint.{module}" for module in ("specification", "metadata_file", "delimited_text", "text_reader")}
FINDINGS = {"lint.column_rules", "lint.file_rules"}
"""The rules whose findings are the reasons with which the replica refuses a file."""
LOG_FORMAT = {f"landing.{module}" for module in ("names", "log_record", "errors", "strict_json")}
SHARED = {
    "source.reader",
    "source.transformed_values",
    "landing.selection",
    "landing.tag_rules",
    "landing.delivery",
    "landing.log_record",
}
"""Modules of `verify` that decide about rows and that the publisher uses as well."""
SENTENCE = (
    "`verify` shares the reader of source versions, the selection of columns and rows, the secret for hashes, the"
    " names of delivery modes, and the log records"
)
IDENTITY = {
    *(f"source.{module}" for module in ("identifier", "table_info", "errors", "snapshot_or_range", "versions")),
    *(f"landing.{module}" for module in ("names", "errors", "output_format")),
    *("config.model", "archive", "runtime.spark_session", "runtime.spark_errors", "storage.onelake"),
}
"""Modules that name things, such as a snapshot, open them, or refuse archived files."""
PREFIX = f"{local_replica.__name__}."
BELOW = {"storage", "errors", "display"}


def imports_of(source: str) -> set[str]:
    """Modules of this package that a module imports, at any place. Names do not include the package name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or ''}", *(f"{node.module}.{name.name}" for name in node.names)}
    modules = {name.removeprefix("mirrorfeed.") for name in found if name.startswith(("mirrorfeed.", "."))}
    return {name for name in modules if name.startswith(".") or _file(name)}


def not_allowed(imports: set[str], allowed: set[str]) -> set[str]:
    return {name for name in imports if not any(f"{name}.".startswith(f"{room}.") for room in allowed)}


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imports_in(room: str) -> set[str]:
    """The imports of a module, or of all modules in a room."""
    path = room.replace(".", "/")
    files = [*ROOT.glob(f"{path}.py"), *ROOT.glob(f"{path}/**/*.py")]
    assert files
    return set().union(*(imports_of(file.read_text(encoding="utf-8")) for file in files))


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("mirror.local_replica", {"mirror.local_replica", "mirror.errors", *READERS, *FINDINGS, *BELOW}),
        ("lint", {"lint", *LOG_FORMAT, *BELOW}),
        ("lint.*_rules", {"lint", *LOG_FORMAT, "errors", "display"}),
        ("mirror.verify", {"mirror.verify", "mirror.errors", *SHARED, *IDENTITY, "errors", "display"}),
    ],
)
def test_package_imports_only_modules_independent_of_the_publisher(room: str, allowed: set[str]) -> None:
    packages = {name.rpartition(".")[0] for name in allowed} | {"lint", "mirror"}
    assert not_allowed(_imports_in(room), allowed) - packages == set()


def test_pages_name_what_verify_shares_with_the_publisher() -> None:
    assert _imports_in("mirror.verify") >= SHARED
    for page in ("docs/how-exactly-once-works.md", "docs/architecture.md", "CONTRIBUTING.md"):
        text = " ".join((ROOT.parent.parent / page).read_text(encoding="utf-8").split())
        assert SENTENCE in text, page
        assert "`verify` and the model share no code" not in text


def test_replica_uses_the_texts_of_rules_and_no_code_of_theirs() -> None:
    modules = [importlib.import_module(each.name) for each in pkgutil.iter_modules(local_replica.__path__, PREFIX)]
    used = [value for module in (local_replica, *modules) for value in vars(module).values()]
    assert NO_KEY in used
    assert not [value for value in used if getattr(value, "__module__", "").endswith("_rules")]


def test_replica_readers_import_only_each_other() -> None:
    allowed = {*READERS, "errors", "display"}
    for module in READERS:
        file = _file(module)
        assert file
        assert not_allowed(imports_of(file.read_text(encoding="utf-8")), allowed) - {"lint"} == set()


def test_rules_import_neither_spark_nor_storage_nor_arrow() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "lint").glob("*_rules.py"))
    assert not any(package in text for package in ("pyspark", "pyarrow", "mirrorfeed.storage"))


@pytest.mark.parametrize(
    "line",
    [
        "from mirrorfeed.landing.output_format import Output",
        "from mirrorfeed.landing import output_format",
        "import mirrorfeed.publish.files.delimited_text",
        "from mirrorfeed import publish",
        "def later():\n    from mirrorfeed.publish.files.staging_job import StagingJob",
        "from ..landing import names",
    ],
)
def test_import_of_the_publisher_is_detected(line: str) -> None:
    assert not_allowed(imports_of(line), {"lint", "mirror.local_replica", *LOG_FORMAT, *BELOW}) - {"landing"}
