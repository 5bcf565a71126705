"""Documentation pages are correct: commands and names exist, configurations load, and links work."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import pytest
import yaml
from click.testing import CliRunner
from databricks.bundles.jobs import Job
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import mirrorfeed
from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config, Sources, Table
from mirrorfeed.config.options import HistoryLocation, Options
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.output_format import Delimited
from mirrorfeed.runtime.credentials import SECRET_FIELDS, ServicePrincipal
from mirrorfeed.runtime.local_spark import local_options
from mirrorfeed.runtime.version import RELEASE
from mirrorfeed.storage.onelake import ENDPOINT
from tests.config.test_schema import schema_errors
from tests.support.bundle import merged_files
from tools import site as site_config
from tools.config_schema import fields_on_page
from tools.pages import ROOT, Snippet, pages, snippets, within_sentences
from tools.public_api import GROUPS
from tools.reference import stale

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
ELSEWHERE = {"az", "cd", "cp", "dbt", "echo", "export", "gh", "pip", "pre-commit"}
"""Programs that are not installed when tests run. Their lines are only split into words."""
_IN_BUNDLES, _OF_CI, _OF_COLLECTORS = {"variables", "resources", "targets"}, {"jobs", "steps"}, {"receivers"}
"""Top-level keys of snippets that are no configuration."""
OURS = {"mirrorfeed", "make", "databricks"}


def inline(*first: str) -> list[Snippet]:
    """Commands within sentences."""
    return [each for each in within_sentences() if each.text.split()[0] in first and len(each.text.split()) > 1]


def test_every_snippet_has_a_checked_language() -> None:
    kinds = Counter(each.kind for each in snippets())
    assert set(kinds) <= {"sh", "yaml", "json", "python", "properties", "text", "bicep", "hcl"}
    assert min(kinds[kind] for kind in ("sh", "yaml", "json", "python")) > 0


LONGEST_WITH_COMMENT = 84
"""Characters of a code block that the site shows without scrolling, on a screen with 1280 or more pixels."""


def test_comments_in_code_blocks_are_visible_without_scrolling() -> None:
    lines = [(each.place, line) for each in snippets() for line in each.text.splitlines()]
    with_comment = [(place, line) for place, line in lines if re.search(r"(^|\s)#\s", line)]
    assert len(with_comment) > 100
    assert [each for each in with_comment if len(each[1]) > LONGEST_WITH_COMMENT] == []


COMMANDS = [*snippets("sh"), *inline("mirrorfeed", "make", "databricks")]


@pytest.fixture
def parses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands parse their arguments and do nothing."""
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, *_: value)  # files need not exist
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)


@pytest.mark.usefixtures("parses_only")
@pytest.mark.parametrize("snippet", COMMANDS, ids=str)
def test_every_command_and_its_arguments_exist(snippet: Snippet) -> None:
    for program, *arguments in snippet.commands:
        assert program in OURS | ELSEWHERE, f"{program} is not known here: say how it is checked"
        if program == "mirrorfeed":
            check_mirrorfeed(arguments)
        elif program == "make":
            assert arguments[0] in verbs()
        elif program == "databricks":
            check_databricks(arguments)


def check_mirrorfeed(arguments: list[str]) -> None:
    """Parse as the command line does. A command that is only mentioned may omit its arguments."""
    found = CliRunner().invoke(main, arguments)
    only_named = not any(each.startswith("-") for each in arguments)
    missing = "Error: Missing" in found.output or "Error:" not in found.output  # arguments, or the command of a group
    assert found.exit_code == 0 or (only_named and missing), found.output


@cache
def verbs() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@cache
def bundle() -> dict[str, Any]:
    return merged_files()


def check_databricks(arguments: list[str]) -> None:
    """Check jobs, targets and variables against the bundle. The next test checks the rest with the CLI."""
    for option, known in (("-t", bundle()["targets"]), ("--var", bundle()["variables"])):
        if option in arguments:
            assert arguments[arguments.index(option) + 1].partition("=")[0] in known
    if arguments[:2] == ["bundle", "run"]:
        file = ROOT / f"resources/{arguments[2]}.job.yml"
        assert file.exists()
        if "--params" in arguments:
            name = arguments[arguments.index("--params") + 1].partition("=")[0]
            assert f"name: {name}" in file.read_text(encoding="utf-8")


@pytest.mark.usefixtures("parses_only")
@pytest.mark.parametrize(
    "snippet", [each for each in snippets("yaml") if "resources" in yaml.safe_load(each.text)], ids=str
)
def test_jobs_on_the_pages_are_valid_and_run_existing_commands(snippet: Snippet) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    for job in yaml.safe_load(snippet.text)["resources"].get("jobs", {}).values():
        Job.from_dict(job)
        for task in (each["python_wheel_task"] for each in job["tasks"] if "python_wheel_task" in each):
            assert task["entry_point"] in scripts
            check_mirrorfeed(task["parameters"])


@pytest.mark.usefixtures("parses_only")
@pytest.mark.parametrize(
    "snippet", [each for each in snippets("yaml") if _OF_CI & yaml.safe_load(each.text).keys()], ids=str
)
def test_ci_jobs_on_the_pages_run_existing_commands(snippet: Snippet) -> None:
    found = yaml.safe_load(snippet.text)
    steps = [step for job in found.get("jobs", {"": found}).values() for step in job["steps"]]
    commands = [shlex.split(command) for step in steps if (command := step.get("run") or step.get("script"))]
    ours = [words[1:] for words in commands if words[0] == "mirrorfeed"]
    assert ours
    for arguments in ours:
        check_mirrorfeed(arguments[: arguments.index(">")] if ">" in arguments else arguments)


CLI = shutil.which("databricks")


@pytest.mark.skipif(CLI is None, reason="there is no databricks command on PATH")
def test_databricks_commands_and_options_exist() -> None:
    used = (words for each in COMMANDS for words in each.commands if words[0] == "databricks")
    for words in dict.fromkeys(tuple(each[1:]) for each in used):
        command = [each for each in words if not each.startswith("-")][: 3 if words[0] == "bundle" else 2]
        answer = subprocess.run([CLI or "", *command, "--help"], capture_output=True, text=True, check=True)
        assert "Usage:\n  databricks" in answer.stdout
        options = [each for each in words if each.startswith("-")]
        assert all(re.search(rf"(?<![\w-]){option}(?![\w-])", answer.stdout) for option in options), words


def test_readme_matches_the_getting_started_page() -> None:
    page = ROOT / "docs/getting-started.md"
    of_the_page = [words for each in snippets("sh", page) for words in each.commands]
    commands = [words for each in snippets("sh", ROOT / "README.md") for words in each.commands]
    assert commands == of_the_page[: len(commands)]
    assert [each.text for each in snippets("yaml", ROOT / "README.md")] == [
        each.text for each in snippets("yaml", page)
    ]


_FILLED_IN = {"<workspace id>": ID, "<mirrored database id>": ID, "{…}": "{}"}


def _is_configuration(document: dict[str, Any]) -> bool:
    return "tables" in document or not (_IN_BUNDLES | _OF_CI | _OF_COLLECTORS) & document.keys()


_AT_THE_TOP = re.compile(rf"({'|'.join(field.alias or name for name, field in Config.model_fields.items())}): (?!…)\S")
CONFIGURATIONS = [
    *(each for each in snippets("yaml") if _is_configuration(yaml.safe_load(each.text))),
    *(each for each in within_sentences() if _AT_THE_TOP.match(each.text)),
]


@pytest.mark.parametrize("snippet", CONFIGURATIONS, ids=str)
def test_every_configuration_is_valid(snippet: Snippet, tmp_path: Path) -> None:
    text = snippet.text
    for name, value in _FILLED_IN.items():
        text = text.replace(name, value)
    given = yaml.safe_load(re.sub(r"<[^>\n]*>|…", "x1", text))
    zone = (
        f"onelake://{ID}/{ID}"
        if {"credential", "endpoint", "fabric_endpoint", "private_link", "trusted_hosts", "ca_bundle", "fabric"}
        & given.keys()
        else "zone"
    )
    needs = {"row_markers": {"changes": "full"}, "delimited": {"format": "delimited"}}
    missing = {"landing_zone": zone, "tables": [{"source": "main.sales.orders", "target": "sales.orders"}]}
    if given.get("changes") == "compare":
        missing["ledger"] = "main.ops.ledger"
    configuration = {
        **missing,
        **{name: value for each in given for name, value in needs.get(each, {}).items()},
        **given,
    }
    (tmp_path / "mirrorfeed.yml").write_text(yaml.safe_dump(configuration, allow_unicode=True), encoding="utf-8")
    spreads = any("landing_zone" in entry for entry in configuration["tables"] if isinstance(entry, dict))
    loaded = load(tmp_path / "mirrorfeed.yml", landing_zone=configuration["landing_zone"] if spreads else None)
    assert loaded.tables or loaded.patterns
    assert schema_errors(configuration) == []


@pytest.mark.parametrize("snippet", snippets("json"), ids=str)
def test_every_json_snippet_is_valid(snippet: Snippet) -> None:
    assert json.loads(snippet.text)


@pytest.mark.parametrize("snippet", snippets("properties"), ids=str)
def test_spark_settings_are_those_of_a_local_spark_or_name_the_host_of_the_endpoint(snippet: Snippet) -> None:
    ours = local_options({})
    for line in snippet.text.splitlines():
        name, value = line.split(" ")
        if name in ours:
            assert value == ours[name]
            continue
        assert name.startswith("spark.hadoop.fs.azure.account.")
        assert name.endswith(ENDPOINT.removeprefix("https://"))


GIVEN = {"spark", "display", "dbutils", "config", "token"}
"""Names in a notebook, and names that the text around a snippet defines."""


@pytest.mark.parametrize("snippet", snippets("python"), ids=str)
def test_python_snippets_use_existing_names_and_valid_calls(snippet: Snippet) -> None:
    Python().check(ast.parse(snippet.text))


_NOT_INSTALLED = {"airflow"}


class Python:
    """Checks names in a snippet as far as types are declared: imports, our functions and their results, methods,
    attributes."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        """The type of each name. None if it is unknown and not checked."""

    def check(self, module: ast.Module) -> None:
        for statement in module.body:
            match statement:
                case ast.Import():
                    for alias in statement.names:
                        self.known[alias.asname or alias.name.partition(".")[0]] = importlib.import_module(alias.name)
                case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in _NOT_INSTALLED:
                    self.known |= {each.asname or each.name: None for each in statement.names}
                case ast.ImportFrom():
                    found = importlib.import_module(statement.module or "")
                    self.known |= {each.asname or each.name: getattr(found, each.name) for each in statement.names}
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.known[name] = self.value(statement.value)
                case _:
                    for each in ast.iter_child_nodes(statement):
                        self.value(each)

    def value(self, node: ast.AST) -> Any:
        match node:
            case ast.Name(id=name):
                assert name in self.known or name in GIVEN or hasattr(builtins, name), f"{name} is nowhere"
                return self.known.get(name, getattr(builtins, name, None))
            case ast.Attribute():
                return self.attribute(self.value(node.value), node.attr)
            case ast.Call():
                return self.call(node)
            case ast.ExceptHandler(name=str(name)):
                self.known[name] = None  # an error has more attributes than the class that is caught
        for each in ast.iter_child_nodes(node):
            self.value(each)
        return None

    def attribute(self, of: Any, name: str) -> Any:
        if of is None or (isinstance(of, _Instance) and of.kind is None):
            return None
        kind = of.kind if isinstance(of, _Instance) else of
        if isinstance(of, _Instance) and is_dataclass(kind) and name in kind.__annotations__:
            return _instance(kind, name)
        assert hasattr(kind, name), f"{kind} has no {name}"
        found = inspect.getattr_static(kind, name, None)  # a module may create names on access
        if isinstance(found, property) and isinstance(of, _Instance):
            return _instance(found.fget)
        return _Method(getattr(kind, name)) if isinstance(of, _Instance) else getattr(kind, name)

    def call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        given = [self.value(each) for each in node.args]
        keywords = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
        if function is None:
            return None
        called = function.function if isinstance(function, _Method) else function
        if getattr(called, "__module__", "").startswith("mirrorfeed"):
            inspect.signature(called).bind(*([None] if isinstance(function, _Method) else []), *given, **keywords)
            return _Instance(called) if inspect.isclass(called) else _instance(called)
        return None


class _Instance:
    def __init__(self, kind: Any) -> None:
        self.kind = kind


class _Method:
    def __init__(self, function: Any) -> None:
        self.function = function


def _instance(of: Any, name: str = "return") -> _Instance | None:
    """An instance of the annotated type, if it is one of ours."""
    with suppress(NameError):  # imports for type checking only
        names = {each.__name__: each for each in (mirrorfeed.ArchiveAwareTable, *GROUPS.values())}
        kind = eval(of.__annotations__.get(name, "None"), names | vars(sys.modules[of.__module__]))
        return _Instance(kind) if inspect.isclass(kind) and kind.__module__.startswith("mirrorfeed") else None
    return None


# Reference pages


def test_generated_pages_are_up_to_date() -> None:
    assert stale() == [], "run make fmt, which makes them anew"


def _fields_of(kind: Any) -> dict[str, FieldInfo]:
    types = get_type_hints(kind, include_extras=True)
    parts = dataclasses.fields(kind)
    return {each.name: FieldInfo.from_annotated_attribute(types[each.name], each.default) for each in parts}


DATACLASSES: dict[Any, dict[str, FieldInfo]] = {kind: _fields_of(kind) for kind in (Delimited, Delivery)}


def fields(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Fields that hold a value, by their names in the file."""
    for python_name, field in model.model_fields.items():
        name = field.alias or python_name
        if name == "tables":
            continue
        if parts := DATACLASSES.get(field.annotation):
            yield from ((f"{path}{name}.{part}", each) for part, each in parts.items())
            if field.annotation is not Delivery:  # a text or a map
                continue
        inner = [each for each in kinds(field.annotation) if inspect.isclass(each) and issubclass(each, BaseModel)]
        many = get_origin(field.annotation) in (list, tuple)
        if not inner or HistoryLocation in inner:  # a history is a text or a map
            yield f"{path}{name}", field
        for each in inner if model is not Table or HistoryLocation not in inner else []:
            yield from fields(each, f"{path}{name}{'[]' if many else ''}.")


def kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (None, Literal):
        yield annotation
    for each in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from kinds(each)


def in_the_file() -> dict[str, FieldInfo | None]:
    own = Table.model_fields.keys() - Options.model_fields.keys()
    of_tables = {f"tables[].{name}": field for name, field in fields(Table) if name.partition(".")[0] in own}
    of_tables |= {
        f"tables[].{Sources.model_fields[name].alias or name}": Sources.model_fields[name]
        for name in ("sources", "exclude", "tags")
    }
    secret = {f"credential.service_principal.secret.{name}" for name in SECRET_FIELDS}
    principal = {f"credential.service_principal.{each.name}" for each in dataclasses.fields(ServicePrincipal)}
    by_hand = {"credential.service_credential", *principal, *secret}
    return {**dict(fields(Config)), **of_tables, **dict.fromkeys(by_hand)}


def test_configuration_page_lists_exactly_all_fields() -> None:
    assert sorted(fields_on_page()) == sorted(in_the_file())


_WRITTEN = {"target_file_size": ("`128 MiB`", 128 * 2**20), "load_part_size": ("`32 GiB`", 32 * 2**30)}
"""Defaults that are written with a unit."""


@pytest.mark.parametrize("name", [name for name, field in in_the_file().items() if field is not None])
def test_field_is_documented_with_its_default_and_values(name: str) -> None:
    cell, words = fields_on_page()[name]
    field = in_the_file()[name]
    assert field
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        assert cell == "required"
    elif default is None:
        assert cell == "none"
    elif name in _WRITTEN:
        assert (cell, default) == _WRITTEN[name]
    elif name == "delivery":
        assert (cell, default) == ("`upsert`", Delivery())
    elif name == "credential":
        assert cell == "`default`"
    else:
        assert yaml.safe_load(cell.strip("`")) == (list(default) if isinstance(default, tuple) else default)
    values = [value for each in kinds(field.annotation) if get_origin(each) is Literal for value in get_args(each)]
    assert all(f"`{value}`" in words for value in values)


# Pages


def test_every_page_is_in_the_navigation_with_title_and_summary() -> None:
    site = tomllib.loads((ROOT / "docs/zensical.toml").read_text(encoding="utf-8"))
    files = {str(page.relative_to(ROOT / "docs")) for page in pages() if page.is_relative_to(ROOT / "docs")}
    assert files | {site_config.CHANGELOG.name} == set(re.findall(r"'([\w/-]+\.md)'", str(site["project"]["nav"])))
    assert site["project"]["copyright"].startswith(f"mirrorfeed {RELEASE}. ")
    for name in files - {"index.md"}:
        lines = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines()
        assert (lines[0][:2], lines[1]) == ("# ", "")
        assert lines[2][:1].isalpha() or lines[2].startswith(("`", "[")), name


def test_links_of_pages_outside_the_site_are_valid() -> None:
    for page in (page for page in pages() if page.parent == ROOT):
        for link in re.findall(r"\]\((?!https://|#)([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (ROOT / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_changelog_is_a_page_and_the_header_links_to_a_configured_repository() -> None:
    page = site_config.changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    for link in re.findall(r"\]\((?!https://)([^)#]+)", page):
        assert (ROOT / "docs" / link).exists(), link
    text = site_config.CONFIG.read_text(encoding="utf-8")
    assert site_config.config(text, "[project]") == text
    with_address = site_config.config(text, "[project.urls]\nRepository = 'https://git.example.com/mirrorfeed'")
    assert tomllib.loads(with_address)["project"]["extra"] == {"repository": "https://git.example.com/mirrorfeed"}


def test_site_loads_nothing_from_elsewhere() -> None:
    for page in pages():
        assert not re.findall(r"!\[[^]]*\]\(https?:|<script|<iframe|```mermaid", page.read_text(encoding="utf-8"))


def test_modules_on_the_architecture_page_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    modules = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    assert len(modules) > 15
    assert [each for each in modules if not ((ROOT / "src/mirrorfeed" / each).exists() or (ROOT / each).exists())] == []


@pytest.mark.parametrize(
    "words",
    [
        "quickstart", "getting started", "incremental", "initial load", "backfill", "schema evolution", "idempotent",
        "latency", "monitoring", "concurrency", "parallel", "log level", "retry", "dead letter", "pip install",
        "airflow",
    ],
)  # fmt: skip
def test_search_finds_a_guide_for_ordinary_words(words: str) -> None:
    guides = [page for page in pages() if page.parent.name == "docs"]
    assert [page.name for page in guides if words in re.sub(r"\s+", " ", page.read_text(encoding="utf-8")).lower()]
