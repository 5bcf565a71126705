"""Which columns the rules for tags transform, and which columns stop a table."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from mirrorfeed.config.model import Table
from mirrorfeed.config.tag_options import with_transformations
from mirrorfeed.landing.errors import invalid_selection, selection_changed
from mirrorfeed.landing.log_record import unselected_columns
from mirrorfeed.landing.selection import target_keys
from mirrorfeed.landing.tag_rules import check_tags_known, column_tags_changed, column_tags_unknown
from tests.landing.test_log_record import RECORD
from tests.raised import raises

RULES = {"level=high": "mask", "pii": "hash", "level": "truncate(month)"}
COLUMNS = ("id", "name", "email", "born")
Tags = dict[str, set[tuple[str, str]]]
TAGGED: Tags = {"name": {("pii", "")}, "email": {("pii", "mail"), ("level", "high")}, "born": {("level", "low")}}


def configured(**options: object) -> Table:
    given = {"source": "main.sales.orders", "target": "sales.orders", "transform_tags": RULES, **options}
    return Table.model_validate({**given, "hash_key": {"env": "HASH_KEY"}})


def orders(tags: Tags, columns: tuple[str, ...] = COLUMNS, **options: object) -> Table:
    return with_transformations(configured(**options), columns, tags)


def test_first_rule_that_matches_transforms_a_column_unless_it_has_its_own_transformation() -> None:
    assert orders(TAGGED).transform == {"name": "hash", "email": "mask", "born": "truncate(month)"}
    given = orders(TAGGED, transform={"name": "mask", "id": "hash"}, exclude_columns=["email"])
    assert given.transform == {"name": "mask", "id": "hash", "born": "truncate(month)"}
    again = with_transformations(
        given, COLUMNS, {"name": {("pii", "")}, "id": {("pii", "")}, "born": {("PII", ""), ("pi", "i")}}
    )
    assert again.transform == {"name": "mask", "id": "hash"}, "the tags of the last reading count"
    assert again.selection
    assert again.selection.summary.endswith("columns tagged level=high: mask, columns tagged pii: hash, columns tagged"
                                            " level: truncate(month)")  # fmt: skip


@pytest.mark.parametrize(
    ("read", "selected", "unknown"),
    [
        (None, ["id"], ["id"]),
        (["ID", "Name"], ["id", "name"], []),
        (["id"], ["id", "name", "own"], ["name"]),  # added or dropped since the tags were read
    ],
)
def test_columns_whose_tags_were_not_read_are_refused(
    read: list[str] | None, selected: list[str], unknown: list[str]
) -> None:
    own = {"own": "mask"}
    selection = (configured(transform=own) if read is None else orders({}, tuple(read), transform=own)).selection
    assert selection
    with raises(column_tags_unknown, match=f": '{unknown[0]}'") if unknown else nullcontext():
        check_tags_known("t", selection, selected)


def test_changed_tag_of_a_published_column_stops_the_table_until_it_is_excluded() -> None:
    types = dict.fromkeys(COLUMNS, "string")

    def published(before: Table, now: Table) -> list[str]:
        record = replace(RECORD, selection=before.selection, source_columns=types, key_digest=None)
        return unselected_columns("t", record, now.selection)

    plain, masked = orders({}), orders({"email": {("level", "high")}})
    with raises(column_tags_changed, match="the transformation of 'email' was none and is 'mask'"):
        published(plain, masked)
    with raises(column_tags_changed, match="the transformation of 'email' was 'mask' and is none"):
        published(masked, plain)
    with raises(selection_changed, match="'email' was none and is 'mask'"):  # not because of a tag
        published(plain, orders({}, transform={"email": "mask"}))
    assert published(plain, orders(TAGGED, exclude_columns=["name", "email", "born"])) == ["name", "email", "born"]
    assert published(masked, orders({}, ("id", "name", "born"))) == [], "the source has no such column any more"


def test_tagged_key_can_be_hashed_and_not_masked() -> None:
    assert target_keys("t", orders({"id": {("pii", "")}}).selection, ["id"]) == ("id",)
    with raises(invalid_selection, match="'id' is a key, and different keys could become the same with mask"):
        target_keys("t", orders({"id": {("level", "high")}}).selection, ["id"])
