"""Output of notebook cells that display a result, in a Jupyter kernel."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """\
import logging, os
from mirrorfeed.api.results import Result
from mirrorfeed.api.results import Enabled
logging.basicConfig(level=logging.INFO, format="%(message)s")
result = Result((Enabled("the table", "the source", "the feed"),))
os.environ.update(ENVIRONMENT)
"""
CELLS = ("result", "print(result)", "f'{result}'", "logging.info('%s', result)")
ENVIRONMENTS = ({}, {"DATABRICKS_RUNTIME_VERSION": "16.4"})


@pytest.fixture(scope="module")
def outputs() -> list[list[dict[str, Any]]]:
    """Outputs of every cell, in a plain kernel and in one that resembles the Databricks runtime."""
    cells = []
    for environment in ENVIRONMENTS:
        cells += [SETUP.replace("ENVIRONMENT", repr(environment)), *CELLS]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    ran = NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return [cell["outputs"] for cell in ran["cells"]]


@pytest.mark.parametrize("environment", range(len(ENVIRONMENTS)))
@pytest.mark.parametrize("cell", CELLS)
def test_cell_has_one_output_with_the_whole_table(
    outputs: list[list[dict[str, Any]]], cell: str, environment: int
) -> None:
    found = outputs[environment * (len(CELLS) + 1) + 1 + CELLS.index(cell)]
    assert len(found) == 1, found
    data = found[0].get("data", {"text/plain": found[0].get("text", "")})
    assert {"the table", "the source", "the feed"} == {
        word for word in ("the table", "the source", "the feed") if word in data["text/plain"]
    }
    assert ("text/html" in data) == (cell == "result")
