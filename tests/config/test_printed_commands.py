"""Commands in messages name the configuration file that the user chose."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirrorfeed.config.printed_commands import name_config, name_config_in_command
from mirrorfeed.monitor.findings import Rule, TableFacts, error_finding, with_config
from mirrorfeed.monitor.problem_rules import RULES
from mirrorfeed.source.errors import Recreation, SourceRecreatedError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Run `mirrorfeed publish`.", "Run `mirrorfeed publish --config shop.yml`."),
        ("Run `mirrorfeed log 'a b'` first.", "Run `mirrorfeed log 'a b' --config shop.yml` first."),
        ("`mirrorfeed --ledger TABLE report`", "`mirrorfeed --ledger TABLE report --config shop.yml`"),
        ("`mirrorfeed fabric stop && mirrorfeed fabric start`",
         "`mirrorfeed fabric stop --config shop.yml && mirrorfeed fabric start --config shop.yml`"),
        ("`mirrorfeed publish --config other.yml`", "`mirrorfeed publish --config other.yml`"),
        ("Run `mirrorfeed init` or `mirrorfeed explain MF1`.", "Run `mirrorfeed init` or `mirrorfeed explain MF1`."),
        ("`REORG TABLE t` or `on_gap: reseed`", "`REORG TABLE t` or `on_gap: reseed`"),
    ],
)  # fmt: skip
def test_each_command_in_a_message_names_the_file(text: str, expected: str) -> None:
    assert name_config(text, "shop.yml") == expected
    assert name_config(expected, "shop.yml") == expected
    assert name_config(text, "mirrorfeed.yml") == text


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("mirrorfeed.yml", ""),
        ("./mirrorfeed.yml", ""),
        ("HERE/mirrorfeed.yml", ""),
        ("sub/mirrorfeed.yml", " --config sub/mirrorfeed.yml"),
        ("/jobs/mirrorfeed.yml", " --config /jobs/mirrorfeed.yml"),
        ("my shop.yml", " --config 'my shop.yml'"),
    ],
)
def test_only_another_file_than_the_default_is_named(path: str, option: str) -> None:
    path = path.replace("HERE", str(Path.cwd()))
    assert name_config_in_command("mirrorfeed rebuild sales.orders", path) == f"mirrorfeed rebuild sales.orders{option}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.code} {rule.name}")
def test_fix_of_each_rule_names_the_file_in_its_commands(rule: Rule[Any]) -> None:
    """A fix that is a statement in SQL has no command."""
    facts = TableFacts("sales.orders", "s")
    plain = replace(rule, test=lambda _: {}, text="").find(facts)
    assert plain
    named = with_config(plain, "shop.yml")
    assert named.fix.count(" --config shop.yml") == len(re.findall(r"\bmirrorfeed [a-z]", plain.fix))
    assert (named.fix == named.command) == (plain.fix == plain.command)


def test_fix_of_an_error_names_the_table_and_the_file() -> None:
    error = SourceRecreatedError(
        table="t", published_id="a", found_id="b", published=1, latest=2, reason=Recreation.UNREADABLE
    )
    found = with_config(error_finding("sales.orders", error), "shop.yml")
    assert "`mirrorfeed rebuild sales.orders --config shop.yml`" in found.fix
    assert found.command == "mirrorfeed rebuild sales.orders --config shop.yml"
