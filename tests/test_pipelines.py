"""The pipelines for users: they run the verbs, deploy the targets that exist, store no secret and pin what they use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
GITHUB = (ROOT / ".github/workflows/bundle.yml").read_text(encoding="utf-8")
AZURE = (ROOT / ".azure/pipelines.yml").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("text", [GITHUB, AZURE], ids=["GitHub", "Azure"])
STEPS = {
    "GitHub": next(
        step["run"]
        for step in yaml.safe_load(GITHUB)["jobs"]["deploy"]["steps"]
        if "variable-overrides.json" in step.get("run", "")
    ),
    "Azure": next(
        step["bash"]
        for step in yaml.safe_load(AZURE)["stages"][1]["jobs"][0]["strategy"]["runOnce"]["deploy"]["steps"]
        if "variable-overrides.json" in step.get("bash", "")
    ),
}
"""Those that write the variables down."""
bundle: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))


@BOTH
def test_a_pipeline_checks_tests_validates_and_deploys(text: str) -> None:
    verbs = (
        "make check",
        "make test",
        *(f"databricks bundle {each}" for each in ("validate --strict", "deploy", "run")),
    )
    assert [text.index(verb) for verb in verbs] == sorted(text.index(verb) for verb in verbs)
    assert "databricks bundle run preflight --no-wait" in text
    assert set(re.findall(r"\b(dev|staging|prod)\b", yaml.safe_dump(yaml.safe_load(text)))) == {"staging", "prod"}


@BOTH
def test_a_pipeline_logs_in_with_the_token_of_its_run_and_stores_none(text: str) -> None:
    assert re.search(r"DATABRICKS_AUTH_TYPE: (github|azure-devops)-oidc", text)
    assert not re.search(r"secrets\.|DATABRICKS_TOKEN|CLIENT_SECRET", text)


@BOTH
def test_a_pipeline_writes_the_variables_where_complex_ones_are_read_too(text: str) -> None:
    """All but one are in the file that the command line reads: it takes no complex ones from the environment."""
    assert re.findall(r"BUNDLE_VAR_(\w+):", text) == ["service_principal"]
    assert set(bundle["variables"]["notify"]) >= {"type"}
    assert text.index(".databricks/bundle/") < text.index("databricks bundle validate")


def test_actions_are_pinned_to_a_commit_with_its_release_beside_it() -> None:
    used = re.findall(r"uses: (.*)", GITHUB)
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)


@BOTH
def test_the_tools_are_those_that_the_project_is_tried_with(text: str) -> None:
    (version,) = re.findall(r"UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert version in text
    floor = tuple(map(int, re.findall(r"\d+", bundle["bundle"]["databricks_cli_version"])))
    (cli,) = set(re.findall(r"(?:setup-cli@\w+ # v|cli: )([\d.]+)", text))
    assert tuple(map(int, cli.split("."))) >= floor
