"""The JSON Schema of `mirrorfeed.yml`. `tests/test_docs.py` validates all configurations on the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from mirrorfeed.cli import main
from mirrorfeed.config import loader
from tests.config.test_error_messages import CASES
from tools.config_schema import PATH

SCHEMA = json.loads(PATH.read_text(encoding="utf-8"))


def schema_errors(configuration: object) -> list[str]:
    """Messages about the values of a configuration. YAML 1.2, which editors read, has no dates, so they are text."""
    as_read = json.loads(json.dumps(configuration, default=str))
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(as_read)]


def test_schema_is_valid_and_describes_every_field() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["on_replace"]["description"].startswith("Action if the source was replaced")
    assert SCHEMA["properties"]["target_file_size"]["default"] == "128 MiB"
    webhook = SCHEMA["properties"]["alerts"]["properties"]["webhooks"]["items"]["properties"]
    assert webhook["kind"]["description"] == "`teams` or `slack`"


def test_example_is_valid_with_and_without_comments() -> None:
    for text in (loader.EXAMPLE, re.sub(r"(?m)^#(?=\w|  \w)", "", loader.EXAMPLE)):
        assert schema_errors(yaml.safe_load(text)) == []


def test_init_writes_the_schema_to_which_the_example_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    assert CliRunner().invoke(main, ["init", "conf/sales.yml"]).exit_code == 0
    first, *_ = Path("conf/sales.yml").read_text(encoding="utf-8").splitlines()
    written = Path("conf", first.removeprefix("# yaml-language-server: $schema=")).read_text(encoding="utf-8")
    assert json.loads(written) == SCHEMA
    assert json.loads(CliRunner().invoke(main, ["schema"]).output) == SCHEMA


_OF_TYPES = re.compile(r"must be|is missing|is not a known field|has no value|belongs ")
_OF_VALUES = re.compile(
    r"must be (?:a date|lower-case|text:|at most .*9999|a number.*9999)|not nan|is a whole number of more"
)
"""Reasons that need more than types: a schema cannot check them, or YAML 1.2 reads the value in another way."""


def mistakes_of_types() -> Iterator[tuple[str, str]]:
    """Texts with a mistake that a schema can find: an unknown or missing field, or a value of a wrong type or range."""
    for text, messages in CASES:
        found = [each for each in messages if _OF_TYPES.search(each) and not _OF_VALUES.search(each)]
        with suppress(yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError):  # not YAML in an editor
            if found and len(text) < 4000 and yaml.safe_load(text):
                yield text, found[0]


MISTAKES = [*mistakes_of_types()]


@pytest.mark.parametrize("text", [text for text, _ in MISTAKES], ids=[message for _, message in MISTAKES])
def test_schema_rejects_wrong_fields_types_and_ranges(text: str) -> None:
    assert schema_errors(yaml.safe_load(text))


def test_many_mistakes_are_of_fields_types_and_ranges() -> None:
    assert len(MISTAKES) > 100
