"""mirrorfeed.yml is valid for each target of databricks.yml.

Run: uv run --no-project --with notebooks/deployed/*.whl --with pytest pytest tests
"""

from pathlib import Path

import pytest
import yaml

import mirrorfeed

ROOT = Path(__file__).parent.parent
TARGETS = yaml.safe_load((ROOT / "databricks.yml").read_text())["targets"]


@pytest.mark.parametrize("target", TARGETS)
def test_configuration_is_valid(target: str) -> None:
    values = TARGETS[target]["variables"].get("config_variables", "")
    variables = yaml.safe_load(values) if values.startswith("{") else dict([values.split("=", 1)] if values else [])
    feed = mirrorfeed.load(ROOT / "mirrorfeed.yml", variables=variables)
    assert feed.landing_zone
