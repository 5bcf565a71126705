"""The bundle, checked without a workspace: everything that it declares exists, and the other way round."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from databricks.bundles.core import Resource
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.secret_scopes import SecretScope
from databricks.bundles.volumes import Volume

from fixtures.workspace import PRINCIPAL, Workspace
from mirrorfeed.cli import main
from tests.support.bundle import (
    SHARED,
    TARGETS,
    VARIABLES,
    MissingVariable,
    classic,
    compute,
    deployed,
    everywhere,
    granted,
    merge,
    merged_files,
    of_the_page,
    rendered,
)

ROOT = Path(__file__).parent.parent
FILES = sorted(ROOT.glob("resources/*.*.yml"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
CLASSES: dict[str, type[Resource]] = {
    "dashboards": Dashboard,
    "jobs": Job,
    "schemas": Schema,
    "secret_scopes": SecretScope,
    "volumes": Volume,
}

bundle: dict[str, Any] = merged_files()
project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared(file: Path) -> dict[str, dict[str, Any]]:
    """Resources of a file, by kind and name, in any target."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    targets = document.get("targets", {}).values()
    found: dict[str, dict[str, Any]] = document.get("resources", {})
    for target in targets:
        found = merge(found, target["resources"])
    return found


RESOURCES = [
    (kind, name, content) for file in FILES for kind, named in declared(file).items() for name, content in named.items()
]
JOBS = {name: content for kind, name, content in RESOURCES if kind == "jobs"}


def tasks(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All tasks of a job that run something, including tasks in loops."""
    for task in job["tasks"]:
        if "condition_task" not in task:
            yield task["for_each_task"]["task"] if "for_each_task" in task else task


WHEEL_TASKS = [(name, task) for name, job in JOBS.items() for task in tasks(job)]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def used(pattern: str) -> set[str]:
    """References in the texts of the bundle's files."""
    return {match for text in strings(bundle) for match in re.findall(pattern, text)}


def test_bundle_has_three_targets_and_dev_is_the_default() -> None:
    assert list(bundle["targets"]) == ["dev", "staging", "prod"]
    assert [name for name, target in bundle["targets"].items() if target.get("default")] == ["dev"]
    assert bundle["targets"]["dev"]["mode"] == "development"


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_service_principal_runs_the_jobs_outside_dev(target: str) -> None:
    shared = bundle["targets"][target]
    assert shared["mode"] == "production"
    assert shared["run_as"] == {"service_principal_name": "${var.service_principal}"}
    assert any("group_name" in permission for permission in shared["permissions"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_resource_file_is_named_after_its_resource_and_included(file: Path) -> None:
    kind = re.fullmatch(r"(\w+)\.(\w+)\.yml", file.name)
    assert kind
    ((kinds, resources),) = declared(file).items()
    assert kinds == f"{kind[2]}s"
    assert list(resources) == [kind[1]]
    assert any(file in ROOT.glob(pattern) for pattern in bundle["include"])


ASKED = {target: rendered(target) for target in TARGETS}
"""Requests that the Databricks CLI sends to a workspace. `test_bundle_cli.py` compares them with the actual
requests."""
IN_TARGETS = [
    (target, kind, name)
    for target, document in ASKED.items()
    for kind, named in document["resources"].items()
    for name in named
]


@pytest.mark.parametrize(("target", "kind", "name"), IN_TARGETS, ids=map(".".join, IN_TARGETS))
def test_resources_are_accepted_by_the_databricks_sdk_classes(target: str, kind: str, name: str) -> None:
    content = {key: value for key, value in ASKED[target]["resources"][kind][name].items() if value != ""}  # as the CLI
    CLASSES[kind].from_dict(content)  # type: ignore[attr-defined]


def test_every_declared_resource_is_in_a_target() -> None:
    assert {(kind, name) for _, kind, name in IN_TARGETS} == {(kind, name) for kind, name, _ in RESOURCES}


def test_databricks_sdk_classes_refuse_unknown_fields_and_values() -> None:
    """The test above relies on it."""
    with pytest.raises(ValueError, match="no_such_field"):
        Job.from_dict({"name": "x", "no_such_field": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match="OWN_IT"):
        Volume.from_dict({**ASKED["dev"]["resources"]["volumes"]["landing"], "grants": [{"privileges": ["OWN_IT"]}]})


def test_follow_run_ends_before_its_warning_and_the_job_timeout() -> None:
    names = ("follow_minutes", "follow_warn_after_seconds", "timeout_seconds")
    minutes, warning, timeout = (bundle["variables"][name]["default"] for name in names)
    assert minutes * 60 <= timeout / 1.2
    assert minutes * 60 < warning < timeout


@pytest.mark.parametrize("name", JOBS)
def test_warning_about_a_long_run_comes_before_the_job_timeout(name: str) -> None:
    job = ASKED["prod"]["resources"]["jobs"][name]
    (rule,) = job["health"]["rules"]
    assert rule["value"] < job["timeout_seconds"]


def test_variables_of_schedules_are_named_after_their_jobs() -> None:
    for name, job in JOBS.items():
        names = re.findall(r"\$\{var\.(\w+)\}", json.dumps([job.get(each) for each in ("schedule", "continuous")]))
        assert set(names) <= {f"{name}_schedule", f"{name}_pause_status"}
    assert JOBS["publish"]["trigger"] == "${var.publish_trigger}"


@pytest.mark.parametrize(("target", "status"), [("dev", "PAUSED"), ("staging", "UNPAUSED"), ("prod", "UNPAUSED")])
def test_publish_starts_with_the_deployment_except_in_dev(target: str, status: str) -> None:
    assert ASKED[target]["resources"]["jobs"]["publish"]["trigger"]["pause_status"] == status
    paused = rendered(target, VARIABLES[target] | {"publish_pause_status": "PAUSED"})
    assert paused["resources"]["jobs"]["publish"]["trigger"]["pause_status"] == "PAUSED"


def test_every_variable_is_declared_used_and_described() -> None:
    assert used(r"\$\{var\.(\w+)\}") == set(bundle["variables"])
    assert all(variable["description"] for variable in bundle["variables"].values())


def test_every_referenced_resource_exists() -> None:
    resources = {f"{kind}.{name}" for kind, name, _ in RESOURCES}
    assert used(r"\$\{resources\.(\w+\.\w+)\.") <= resources
    assert "schemas.mirrorfeed" in used(r"\$\{resources\.(\w+\.\w+)\.")


@pytest.mark.parametrize("name", JOBS)
def test_job_runs_once_at_a_time_with_timeout_and_notifications(name: str) -> None:
    job, sent = JOBS[name], ASKED["prod"]["resources"]["jobs"][name]
    assert (sent["max_concurrent_runs"], sent["queue"]) == (1, {"enabled": True})
    assert all(job[each] == f"${{var.{each}}}" for each in ("performance_target", "budget_policy_id", "tags"))
    assert job["timeout_seconds"] == "${var.timeout_seconds}"
    assert [rule["metric"] for rule in job["health"]["rules"]] == ["RUN_DURATION_SECONDS"]
    notifications = job["email_notifications"]
    assert notifications["on_failure"] == notifications["on_duration_warning_threshold_exceeded"] == "${var.notify}"


@pytest.mark.parametrize(
    ("name", "task"), WHEEL_TASKS, ids=[f"{name}.{task['task_key']}" for name, task in WHEEL_TASKS]
)
def test_task_uses_the_configured_compute_and_is_not_retried(name: str, task: dict[str, Any]) -> None:
    """Databricks would retry any failure. The package itself retries transient errors."""
    prefix = "verify_" if name in ("verify", "verify_changes", "repair") else ""
    assert task["environment_key"] == f"${{var.{prefix}environment_key}}"
    assert task["job_cluster_key"] == f"${{var.{prefix}cluster_key}}"
    assert task["libraries"] == f"${{var.{prefix}libraries}}"
    assert (task["max_retries"], task["disable_auto_optimization"]) == (0, True)
    assert JOBS[name]["environments"] == "${var.environments}"
    assert JOBS[name]["job_clusters"] == f"${{var.{prefix}job_clusters}}"


def test_concurrency_and_queue_can_be_changed() -> None:
    variables = VARIABLES["prod"] | {"max_concurrent_runs": 3, "queue_enabled": False}
    jobs = rendered("prod", variables)["resources"]["jobs"]
    assert not any(job["queue"]["enabled"] for job in jobs.values())
    assert {name for name, job in jobs.items() if job["max_concurrent_runs"] == 3} == {"publish", "repair", "rebuild"}


def test_documented_triggers_are_accepted_by_the_databricks_sdk_classes() -> None:
    description = bundle["variables"]["publish_trigger"]["description"]
    kinds = []
    for text in re.findall(r"\{pause_status.*?\}\}", description):
        trigger = yaml.safe_load(text)
        job = rendered("prod", VARIABLES["prod"] | {"publish_trigger": trigger})["resources"]["jobs"]["publish"]
        assert job["trigger"] == trigger
        Job.from_dict({"name": "x", "trigger": trigger})
        kinds += trigger.keys() - {"pause_status"}
    assert kinds == ["table_update", "file_arrival"]


def command_of(task: dict[str, Any]) -> click.Context:
    """The command that a task's parameters call, parsed like the entry point does."""
    assert task["package_name"] == project["name"]
    assert task["entry_point"] == "mirrorfeed-task"
    group = EntryPoint("mirrorfeed", project["scripts"]["mirrorfeed"], "console_scripts").load()
    options = {option for parameter in group.params for option in parameter.opts}
    arguments = list(task["parameters"])
    while arguments[0].startswith("--"):
        assert arguments[0] in options
        del arguments[:2]  # and its value
    while isinstance(group, click.Group):
        name, *arguments = arguments
        group = group.commands[name]
    numbers = {f"${{var.{name}}}": value.get("default") for name, value in bundle["variables"].items()}
    arguments = [str(numbers[each]) if isinstance(numbers.get(each), int) else each for each in arguments]
    context: click.Context = group.make_context(name, arguments)  # raises for invalid values
    return context


@pytest.mark.parametrize(
    ("name", "task"), WHEEL_TASKS, ids=[f"{name}.{task['task_key']}" for name, task in WHEEL_TASKS]
)
def test_task_calls_an_existing_command_with_valid_options(name: str, task: dict[str, Any]) -> None:
    context = command_of(task["python_wheel_task"])
    if "config" in context.params:  # no command uses a default for its configuration
        assert context.params["config"] == "${var.config}"


@pytest.mark.parametrize(
    ("name", "task"), WHEEL_TASKS, ids=[f"{name}.{task['task_key']}" for name, task in WHEEL_TASKS]
)
def test_every_task_gets_the_ledger(name: str, task: dict[str, Any]) -> None:
    parameters = task["python_wheel_task"]["parameters"]
    ledger = "${var.catalog}.${resources.schemas.mirrorfeed.name}.ledger"
    given = [value for option, value in pairwise(parameters) if option == "--ledger"]
    assert given == [ledger]


@pytest.mark.parametrize(
    ("name", "task"), WHEEL_TASKS, ids=[f"{name}.{task['task_key']}" for name, task in WHEEL_TASKS]
)
def test_every_task_reads_secrets_from_the_scope_of_its_target(name: str, task: dict[str, Any]) -> None:
    parameters = task["python_wheel_task"]["parameters"]
    given = [value for option, value in pairwise(parameters) if option == "--secret-scope"]
    (scope,) = (content for kind, _, content in RESOURCES if kind == "secret_scopes")
    assert given == [scope["name"]]


def test_entry_point_of_the_tasks_is_in_the_wheel() -> None:
    assert callable(EntryPoint("t", project["scripts"]["mirrorfeed-task"], "console_scripts").load())


def test_unknown_command_parameter_is_refused() -> None:
    """The tests above rely on it."""
    task = {
        "package_name": "mirrorfeed",
        "entry_point": "mirrorfeed-task",
        "parameters": ["publish", "--no-such-option"],
    }
    with pytest.raises(click.UsageError):
        command_of(task)


def test_loop_uses_a_user_list_or_a_task_value_of_an_earlier_task() -> None:
    for job in JOBS.values():
        keys = {task["task_key"]: task for task in job["tasks"]}
        for task in job["tasks"]:
            assert {each["task_key"] for each in task.get("depends_on", [])} <= set(keys)
            if loop := task.get("for_each_task"):
                assert "{{input}}" in loop["task"]["python_wheel_task"]["parameters"]
                reference = re.fullmatch(r"\{\{tasks\.(\w+)\.values\.(\w+)\}\}", loop["inputs"])
                if reference is None:
                    assert loop["inputs"] == "{{job.parameters.archive_tables}}"
                    continue
                assert [each["task_key"] for each in task["depends_on"]] == [reference[1]]
                context = command_of(keys[reference[1]]["python_wheel_task"])
                assert context.params["task_value"] == reference[2]
    assert "for_each_task" in JOBS["publish_each"]["tasks"][1]


def test_archive_job_without_tables_starts_no_loop() -> None:
    job = JOBS["archive"]
    condition, loop = job["tasks"]
    assert job["parameters"] == [{"name": "archive_tables", "default": "${var.archive_tables}"}]
    assert condition["condition_task"] == {"op": "NOT_EQUAL", "left": loop["for_each_task"]["inputs"], "right": "[]"}
    assert loop["depends_on"] == [{"task_key": condition["task_key"], "outcome": "true"}]
    assert bundle["variables"]["archive_tables"]["default"] == "[]"


@pytest.mark.parametrize("name", JOBS)
def test_job_parameters_are_those_read_by_its_tasks(name: str) -> None:
    read = re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(strings(JOBS[name])))
    assert sorted(each["name"] for each in JOBS[name].get("parameters", [])) == sorted(set(read))


@pytest.mark.parametrize("name", ["publish", "publish_each", "rebuild", "repair", "verify", "check_setup"])
def test_job_that_publishes_repairs_or_checks_gets_the_staging_path(name: str) -> None:
    given = [task["python_wheel_task"]["parameters"] for task in tasks(JOBS[name])]
    assert any(["--staging-path", "${var.staging_path}"] in map(list, pairwise(parameters)) for parameters in given)


def test_publish_job_has_one_task() -> None:
    assert [task["task_key"] for task in JOBS["publish"]["tasks"]] == ["publish"]


def test_scheduled_verification_is_paused_with_an_explanation() -> None:
    assert JOBS["verify"]["schedule"]["pause_status"] == "${var.verify_pause_status}"
    assert bundle["variables"]["verify_pause_status"]["default"] == "PAUSED"
    assert "classic cluster" in bundle["variables"]["verify_pause_status"]["description"]
    assert "serverless compute cannot be given access to OneLake" in (ROOT / "resources/verify.job.yml").read_text(
        encoding="utf-8"
    )


def test_only_dev_is_destroyed_with_the_schema_of_its_ledger() -> None:
    schemas = {name: ASKED[name]["resources"]["schemas"]["mirrorfeed"] for name in bundle["targets"]}
    guards = {name: schema.get("lifecycle", {}).get("prevent_destroy", False) for name, schema in schemas.items()}
    assert guards == {"dev": False, "staging": True, "prod": True}


def test_targets_can_be_in_one_workspace() -> None:
    for kind, key in (("schemas", "mirrorfeed"), ("secret_scopes", "secrets")):
        names = {ASKED[target]["resources"][kind][key]["name"] for target in bundle["targets"]}
        assert len(names) == len(bundle["targets"])


def test_jobs_of_targets_have_distinct_names() -> None:
    prefixes = {name: target.get("presets", {}).get("name_prefix") for name, target in bundle["targets"].items()}
    assert prefixes == {"dev": None, "staging": "[staging] ", "prod": ""}  # in dev the Databricks CLI adds the user


def test_only_needed_files_are_synced() -> None:
    assert bundle["sync"] == {"paths": ["notebooks"], "include": ["mirrorfeed.yml", "notebooks/[^.]*"]}


def test_no_group_has_permissions_in_dev_or_a_default_elsewhere() -> None:
    assert "grants" not in RESOURCES[[name for _, name, _ in RESOURCES].index("mirrorfeed")][2]
    for name in ("service_principal", "operators", "readers"):
        assert "default" not in bundle["variables"][name]
        assert bundle["targets"]["dev"]["variables"][name] == ""


@pytest.mark.parametrize("target", ["staging", "prod"])
@pytest.mark.parametrize("readers", ["analysts", "operators"], ids=["other readers", "the operators alone"])
def test_every_group_has_the_expected_grants_on_each_resource(target: str, readers: str) -> None:
    variables = SHARED | {"readers": readers}
    for kind, resources in rendered(target, variables)["resources"].items():
        for resource in resources.values():
            grants = {each["principal"]: set(each["privileges"]) for each in resource.get("grants", [])}
            assert grants == granted(variables).get(kind, {})
    (dashboard,) = rendered(target, variables)["resources"]["dashboards"].values()
    assert {each["group_name"] for each in dashboard["permissions"]} == {"operators", readers}


def test_build_writes_the_deployment_settings_for_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, file = of_the_page(), "notebooks/deployed/deployment.json"
    _, line = rendered("prod", variables)["artifacts"]["wheel"]["build"].split("&&")
    words = shlex.split(line)
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a, target: b}]\n")
    (tmp_path / file).parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    main.main(words[words.index("mirrorfeed") + 1 :], standalone_mode=False)
    assert json.loads((tmp_path / file).read_text(encoding="utf-8")) == deployed(variables)


@pytest.mark.parametrize("target", TARGETS)
def test_tasks_run_on_serverless_or_a_classic_cluster_by_variables(target: str) -> None:
    assert compute(ASKED[target]["resources"]["jobs"].values()) == {"serverless"}
    assert compute(rendered(target, VARIABLES[target] | everywhere(classic()))["resources"]["jobs"].values()) == {
        "classic"
    }


def test_verify_runs_alone_on_a_classic_cluster_with_the_documented_variables() -> None:
    jobs = rendered("prod", SHARED | classic())["resources"]["jobs"]
    classic_jobs = {name for name, job in jobs.items() if compute([job]) == {"classic"}}
    assert classic_jobs == {"verify", "verify_changes", "repair"}
    assert all(not job.get("job_clusters") for name, job in jobs.items() if name not in classic_jobs)


@pytest.mark.parametrize("missing", sorted(SHARED))
def test_missing_variable_is_named(missing: str) -> None:
    with pytest.raises(MissingVariable, match=rf"required variable {missing}\."):
        rendered("prod", {name: value for name, value in SHARED.items() if name != missing})


UNITY, BOARDS, SCOPES = "/api/2.1/unity-catalog", "/api/2.0/lakeview/dashboards", "/api/2.0/secrets/scopes"
BOARD, JOBS_API = f"{BOARDS}/{1:032x}", "/api/2.2/jobs"
SCHEMA, VOLUME = f"{UNITY}/schemas/main.mirrorfeed", f"{UNITY}/volumes/main.mirrorfeed.staging"
CALLS = {
    "dashboards": [f"POST {BOARDS}", f"POST {BOARD}/published", f"GET {BOARD}", f"DELETE {BOARD}"],
    "jobs": [f"POST {JOBS_API}/create", f"GET {JOBS_API}/get", f"POST {JOBS_API}/delete"],
    "schemas": [f"POST {UNITY}/schemas", f"GET {SCHEMA}", f"DELETE {SCHEMA}"],
    "secret_scopes": [f"POST {SCOPES}/create", f"GET {SCOPES}/list", f"POST {SCOPES}/delete"],
    "volumes": [f"POST {UNITY}/volumes", f"GET {VOLUME}", f"DELETE {VOLUME}"],
}
"""Create a resource of each kind, get notifications about it, and delete it."""


@pytest.mark.parametrize("kind", CLASSES)
def test_workspace_simulator_creates_returns_and_deletes_each_resource(kind: str) -> None:
    workspace, wanted = Workspace(PRINCIPAL), ASKED["prod"]["resources"][kind]
    sent = json.dumps({**next(iter(wanted.values())), "parent_path": "/", "job_id": 1, "scope": "mirrorfeed"}).encode()

    def call(line: str) -> Any:
        verb, _, path = line.partition(" ")
        return workspace.answer(verb, path, {"job_id": "1"}, sent)

    *calls, delete = CALLS[kind]
    assert [bool(call(each)) for each in calls][-1]
    resources = set(workspace.objects)
    call(delete)
    assert set(workspace.objects) < resources


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebook_has_no_outputs_and_reads_each_of_its_widgets(file: Path) -> None:
    cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    code = "".join("".join(cell["source"]) for cell in cells)
    defined = re.findall(r'widgets\.(?:text|dropdown)\("(\w+)"', code)
    assert "from mirrorfeed" not in code  # only public names are used
    assert set(defined) - {"config", "landing_zone", "mirror"} == set(re.findall(r'widgets\.get\("(\w+)"', code))
    is_deployed = file.stem != "quickstart"  # which runs without a configuration
    assert ("mirrorfeed.deployed(dbutils, spark)" in code) == (defined[0] == "config") == is_deployed


def test_referenced_notebooks_exist() -> None:
    for kind, _, content in RESOURCES:
        if kind == "jobs":
            for task in tasks(content):
                if notebook := task.get("notebook_task"):
                    assert (ROOT / "resources" / notebook["notebook_path"]).is_file()


def test_wheel_does_not_depend_on_spark() -> None:
    names = {re.split(r"[^\w-]", dependency)[0] for dependency in project["dependencies"]}
    assert not names & {"pyspark", "delta-spark", "databricks-connect"}


# Dashboard

(DASHBOARD,) = (
    json.loads((ROOT / "resources" / content["file_path"]).read_text(encoding="utf-8"))
    for kind, _, content in RESOURCES
    if kind == "dashboards"
)
WIDGETS = [item["widget"] for page in DASHBOARD["pages"] for item in page["layout"]]


def test_dashboard_datasets_and_widgets_match() -> None:
    datasets = {dataset["name"] for dataset in DASHBOARD["datasets"]}
    assert {query["query"]["datasetName"] for widget in WIDGETS for query in widget["queries"]} == datasets


@pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: widget["name"])
def test_widget_shows_the_fields_of_its_query(widget: dict[str, Any]) -> None:
    queried = {field["name"] for query in widget["queries"] for field in query["query"]["fields"]}
    assert set(re.findall(r'"fieldName": "(\w+)"', json.dumps(widget["spec"]))) == queried


def test_widgets_do_not_overlap() -> None:
    used: set[tuple[int, int]] = set()
    for page in DASHBOARD["pages"]:
        for item in page["layout"]:
            place = item["position"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["width"])
                for y in range(place["y"], place["y"] + place["height"])
            }
            assert not cells & used
            assert all(x < 6 for x, _ in cells)
            used |= cells
