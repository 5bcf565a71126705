"""Variables of the configuration: where their values come from, how they replace references, and mistakes."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

import mirrorfeed
from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.config.errors import ConfigInvalidError, option_invalid
from mirrorfeed.config.model import Config
from mirrorfeed.config.printed_commands import name_config
from mirrorfeed.config.variables import parse_variables
from tests.raised import raises

Load = Callable[..., Config]

FILE = """\
    variables: {catalog: dev, parallel: 4}
    landing_zone: /lz
    max_parallel_tables: ${parallel}
    tables:
      - source: ${catalog}.sales.orders
        target: "${schema}.orders"
    """


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def load_text(text: str, variables: Mapping[str, str] = {}, **options: Any) -> Config:
        Path("mirrorfeed.yml").write_text(dedent(text), encoding="utf-8")
        return loader.load("mirrorfeed.yml", variables=variables, **options)

    return load_text


def test_value_comes_from_the_caller_then_the_environment_then_the_default(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORFEED_VAR_schema", "sales")
    monkeypatch.setenv("MIRRORFEED_VAR_catalog", "test")
    config = load(FILE, {"catalog": "prod"})
    (table,) = config.tables
    assert (str(table.source), str(table.target), config.max_parallel_tables) == (
        "prod.sales.orders",
        "sales.orders",
        4,
    )
    assert list(map(str, config.variables)) == [
        "parallel = 4 (default)",
        "catalog = prod (set for this run)",
        "schema = sales (MIRRORFEED_VAR_schema)",
    ]
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(load(FILE, {"catalog": "prod"}))
    assert str(load(FILE).tables[0].source) == "test.sales.orders"
    monkeypatch.delenv("MIRRORFEED_VAR_catalog")
    assert str(load(FILE).tables[0].source) == "dev.sales.orders"


def mistakes(load: Load, text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigInvalidError) as caught:
        load(text, variables)
    return [f"{each.line}: {each.field}: {each.reason}" for each in caught.value.mistakes]


@pytest.mark.parametrize(
    ("line", "value", "expected"),
    [
        ("priority: ${n}", "7", 7),
        ("priority: '${n}'", "7", "3: priority: must be a whole number, not '7'"),
        ("priority: ${n}", "high", "3: priority: must be a whole number, not 'high'"),
        ("priority: ${n}", "", "3: priority: has no value: set one, or omit the field"),
    ],
)
def test_text_of_a_variable_is_read_as_if_it_were_in_the_file(
    load: Load, line: str, value: str, expected: object
) -> None:
    """messages.txt has the mistakes that need no value."""
    text = f"landing_zone: /lz\ntables: [{{source: a, target: b}}]\n{line}\n"
    if isinstance(expected, str):
        assert mistakes(load, text, n=value) == [expected]
    else:
        assert load(text, {"n": value}).tables[0].priority == expected


def test_two_dollars_write_a_reference_as_text_and_an_anchor_repeats_the_value(load: Load) -> None:
    first, second = load(
        """\
        landing_zone: /lz
        tables:
          - {source: a, target: a, where: &where "name = '$${x} ${y}'"}
          - {source: b, target: b, where: *where}
        """,
        {"y": "1"},
    ).tables
    assert [each.where for each in (first, second)] == ["name = '${x} 1'"] * 2


def test_reference_in_brackets_without_quotes_is_explained(load: Load) -> None:
    with pytest.raises(mirrorfeed.ConfigurationError, match=r"yml:2: put a reference such as \$\{name\} in quotes"):
        load("landing_zone: /lz\ntables: [{source: ${catalog}.a.b, target: b}]\n", {"catalog": "dev"})


def test_overridden_field_needs_no_variable(load: Load) -> None:
    text = "landing_zone: ${zone}\nstaging_path: ${staging}\ntables: [{source: a, target: b}]\n"
    assert load(text, landing_zone="/lz", staging_path="/s").landing_zone == "/lz"
    other = "landing_zone: ${zone}\ntables: [{source: a, target: b}, {source: c, target: d, landing_zone: /lz}]\n"
    with pytest.raises(ConfigInvalidError, match=r"yml:1: landing_zone: needs the variable zone"):
        load(other, landing_zone="/lz")


def test_variables_of_fields_that_may_hold_secrets_are_not_shown(load: Load) -> None:
    text = """\
        landing_zone: onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7
        credential: {service_principal: {tenant_id: "${tenant}", client_id: c, secret: {env: HERE}}}
        tables: [{source: a, target: b, where: "id <> '${tenant}'"}]
        """
    (variable,) = load(text, {"tenant": "hush"}).variables
    assert str(variable) == "tenant = (not shown) (set for this run)"
    reason = "has a reference to a variable that is not set; write $${ for the text ${"
    assert mistakes(load, text)[0] == f"2: tenant_id: {reason}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a=1", "b=x=y", ""], {"a": "1", "b": "x=y"}),
        (['{"a": "1", "b": ""}', "a=2"], {"a": "2", "b": ""}),
        (["a"], "must be NAME=VALUE or a JSON object, not 'a'"),
        (["a-b=1"], "must be NAME=VALUE or a JSON object, not 'a-b=1'"),
        (['{"a": 1}'], "must be a JSON object of names and texts, which 'a' is not"),
    ],
)
def test_option_accepts_one_variable_or_several(arguments: list[str], expected: object) -> None:
    if isinstance(expected, dict):
        assert parse_variables(arguments) == expected
    else:
        with raises(option_invalid, match=re.escape(str(expected))):
            parse_variables(arguments)


def test_unused_variable_of_the_caller_is_an_error(load: Load) -> None:
    with raises(option_invalid, match=r"sets catlog, which mirrorfeed\.yml does not use: did you mean catalog\?"):
        load(FILE, {"catlog": "prod", "schema": "sales"})
    load("variables: {later: x}\nlanding_zone: /lz\ntables: [{source: a, target: b}]\n", {"later": "y"})


def test_dry_run_lists_the_variables_and_messages_repeat_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = dedent(FILE).replace("target", "paused: {reason: r, until: 2999-01-01}\n    target")
    Path("mirrorfeed.yml").write_text(text.replace("/lz", "./lz"), encoding="utf-8")
    given = ["--var", '{"schema": "sales", "catalog": "my prod"}']
    answer = CliRunner().invoke(main, ["publish", "--dry-run", *given])
    assert answer.exit_code == 0, answer.output
    found = " ".join(answer.output.split())
    assert "parallel = 4 (default), catalog = my prod (set for this run), schema = sales (set for this run)." in found
    failed = CliRunner().invoke(main, ["publish", "sales.other", *given])
    assert failed.exit_code == 1
    assert mirrorfeed.load(variables={"schema": "s"}).tables == ("s.orders",)


def test_commands_in_messages_repeat_the_variables() -> None:
    text = "Run `mirrorfeed publish` and `mirrorfeed init`."
    assert (
        name_config(text, "mirrorfeed.yml", {"a": "x y"})
        == "Run `mirrorfeed publish --var 'a=x y'` and `mirrorfeed init`."
    )
    named = name_config(text, "shop.yml", {"a": "1"})
    assert named == "Run `mirrorfeed publish --config shop.yml --var a=1` and `mirrorfeed init`."
    assert name_config(named, "shop.yml", {"a": "1"}) == named
