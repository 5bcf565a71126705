from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.errors import TerminalError
from mirrorfeed.landing import names
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import Target


@pytest.mark.parametrize(
    ("text", "schema", "table", "folder"),
    [
        ("orders", None, "orders", "orders"),
        ("sales.orders", "sales", "orders", "sales.schema/orders"),
        ("my sales.my orders", "my sales", "my orders", "my sales.schema/my orders"),
        ("`my sales`.orders", "my sales", "orders", "my sales.schema/orders"),
        ("sales.`it``s`", "sales", "it`s", "sales.schema/it`s"),
        ("sales.it's", "sales", "it's", "sales.schema/it's"),
        ("läger.bestände_東京", "läger", "bestände_東京", "läger.schema/bestände_東京"),
        ("schema.table", "schema", "table", "schema.schema/table"),
        ("orders_", None, "orders_", "orders_"),
        ("a" * 128, None, "a" * 128, "a" * 128),
    ],
)
def test_target_is_mapped_to_a_folder(text: str, schema: str | None, table: str, folder: str) -> None:
    target = Target.parse(text)
    assert target == Target(schema, table)
    assert target.folder == folder


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has an empty part"),
        ("sales.", "has an empty part"),
        (".orders", "has an empty part"),
        ("main.sales.orders", "has 3 parts, and the maximum is 2 (schema and table)"),
        ("sales.`orders", "has a backtick that does not enclose a whole part"),
        ("_orders", "has a part that starts with '_', which Fabric ignores: '_orders'"),
        ("_sales.orders", "has a part that starts with '_', which Fabric ignores: '_sales'"),
        ("`sales.schema`", "has a part that ends in '.schema', which marks the folder of a schema: 'sales.schema'"),
        ("`Sales.SCHEMA`.orders", "has a part that ends in '.schema'"),
        ("sales.`a.b`", "has a part with a dot, which some readers take for schema.table: 'a.b'"),
        ("`.`", "has the part '.', which is another folder"),
        ("`..`.orders", "has the part '..', which is another folder"),
        ("sales/orders", "has / in the part 'sales/orders', which is not valid in file names of all systems"),
        ("/etc", "has / in the part '/etc'"),
        ("sales\\orders", "has \\ in the part"),
        ("C:orders", "has : in the part 'C:orders'"),
        ("a*b?c", "has * ? in the part"),
        ('say "so"', 'has " in the part'),
        ("a<b>c|d", "has < > | in the part"),
        ("sales. orders", "has a part that starts or ends with a space: ' orders'"),
        ("orders ", "has a part that starts or ends with a space: 'orders '"),
        ("or\nders", "has a control character: '\\n'"),
        ("or\x00ders", "has a control character: '\\x00'"),
        ("or\x85ders", "has a control character: '\\x85'"),
        ("or\ud800ders", "has a control character: '\\ud800'"),
        ("orders\u202etxt", "has an invisible character: '\\u202e'"),
        ("sales\u200b.orders", "has an invisible character: '\\u200b'"),
        ("or\u00adders", "has an invisible character: '\\xad'"),
        ("a" * 129, "has a part of 129 characters, and the maximum is 128"),
    ],
)
def test_target_that_cannot_be_a_folder_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(TargetNameError) as caught:
        Target.parse(text)
    assert caught.value.text == text
    assert caught.value.reason.startswith(reason)


def test_refusal_names_the_target_and_the_expected_form() -> None:
    with pytest.raises(TargetNameError) as caught:
        Target.parse("_orders")
    assert isinstance(caught.value, TerminalError)
    assert str(caught.value) == (
        "The target '_orders' has a part that starts with '_', which Fabric ignores: '_orders'. Write the target as"
        " schema.table or table. Both names must be possible as names of folders."
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_target_is_never_parsed_as_a_command_option() -> None:
    assert str(Target.parse("--yes")) == "`--yes`"
    assert str(Target.parse("a-b.c-d")) == "a-b.c-d"


@pytest.mark.parametrize(("schema", "table"), [(None, "../x"), ("", "x"), ("..", "x"), (None, "")])
def test_target_created_in_code_is_checked_too(schema: str | None, table: str) -> None:
    with pytest.raises(TargetNameError):
        Target(schema, table)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Sales.Orders", "sales.ORDERS", True),
        ("STRASSE", "straße", True),
        ("caf\u00e9", "CAFE\u0301", True),
        ("orders", "sales.orders", False),
        ("sales.orders", "sales.order", False),
    ],
)
def test_targets_are_compared_case_insensitively(one: str, other: str, same: bool) -> None:
    assert (Target.parse(one).fold() == Target.parse(other).fold()) is same


@given(st.text(), st.none() | st.text())
def test_accepted_target_is_inside_the_landing_zone_and_parseable(table: str, schema: str | None) -> None:
    try:
        target = Target(schema, table)
    except TargetNameError:
        return
    parts = target.folder.split("/")
    assert len(parts) == (1 if schema is None else 2)
    assert all(part not in ("", ".", "..") and not part.startswith("_") and "\\" not in part for part in parts)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("number", "suffix", "name"),
    [
        (1, "parquet", "00000000000000000001.parquet"),
        (17, "parquet", "00000000000000000017.parquet"),
        (10**20 - 1, "parquet", "99999999999999999999.parquet"),
        (17, "csv", "00000000000000000017.csv"),
        (17, "csv.gz", "00000000000000000017.csv.gz"),
    ],
)
def test_data_file_name_has_twenty_digits_and_can_be_parsed(number: int, suffix: str, name: str) -> None:
    assert names.data_name(number, suffix) == name
    assert names.data_number(name, suffix.removesuffix(".gz")) == number
    assert names.published_name(number, names.staged_name(10, "0a", "1", suffix)) == name


@pytest.mark.parametrize("number", [0, -1, 10**20])
def test_invalid_file_number_has_no_name(number: int) -> None:
    with pytest.raises(ValueError, match="is not a valid file number"):
        names.data_name(number)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "00000000000000000000.parquet",
        "0000000000000000001.parquet",
        "000000000000000000001.parquet",
        "00000000000000000001.csv",
        "00000000000000000001.parquet.crc",
        "00000000000000000001.PARQUET",
        "00000000000000000001parquet",
        "00000000000000000001",
        "00000000000000000001.parquet\n",
        " 00000000000000000001.parquet",
        "+0000000000000000001.parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.parquet",  # noqa: RUF001 - digits, but not the service's
        "_00000000000000000001.parquet",
        "part-00000.parquet",
    ],
)
def test_foreign_name_is_not_a_data_file(name: str) -> None:
    assert names.data_number(name) is None


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("_metadata.json", True),
        ("_mirrorfeed", True),
        ("_ProcessedFiles", True),
        ("00000000000000000001.parquet", False),
    ],
)
def test_names_that_start_with_an_underscore_are_ignored_by_fabric(name: str, ignored: bool) -> None:
    assert names.is_ignored(name) is ignored


def test_all_own_files_are_ignored_by_fabric() -> None:
    assert names.METADATA == "_metadata.json"
    assert names.LOG_ID == "_mirrorfeed/log.json"
    assert names.is_log_id("5e1f")
    assert names.log_folder("5e1f") == "_mirrorfeed/5e1f"
    assert all(map(names.is_ignored, (names.METADATA, names.LOG, names.LOG_ID, names.log_folder("5e1f"))))


@pytest.mark.parametrize("log_id", ["", "..", "a/b", "A", "a\n"])
def test_invalid_log_id_has_no_folder(log_id: str) -> None:
    assert not names.is_log_id(log_id)
    with pytest.raises(ValueError, match="is not valid in the name of a file"):
        names.log_folder(log_id)


def test_record_name_has_its_number_and_can_be_parsed() -> None:
    assert names.record_name(9) == "00000000000000000009.json"
    assert names.record_number("00000000000000000009.json") == 9


@pytest.mark.parametrize(
    "name",
    ["log.json", "9.json", "00000000000000000000.json", "00000000000000000009.parquet", "00000000000000000009.json~"],
)
def test_foreign_name_is_not_a_record(name: str) -> None:
    assert names.record_number(name) is None


@pytest.mark.parametrize(
    ("batch", "part", "suffix", "name"),
    [
        ("0a1b", "00001", "parquet", "00000000000000000010-0a1b-00001.parquet"),
        ("0a1b", "3-00001", "parquet", "00000000000000000010-0a1b-3-00001.parquet"),
        ("0a1b", "p3-7", "csv", "00000000000000000010-0a1b-p3-7.csv"),
    ],
)
def test_staged_name_contains_its_record_number(batch: str, part: str, suffix: str, name: str) -> None:
    assert names.staged_name(10, batch, part, suffix) == name
    assert names.staged_record_number(name) == 10


@pytest.mark.parametrize(
    ("batch", "part", "suffix"),
    [
        ("", "1", "parquet"),
        ("xyz", "1", "parquet"),
        ("0A", "1", "parquet"),
        ("0a", "", "parquet"),
        ("0a", "../1", "parquet"),
        ("0a", "A", "parquet"),
        ("0a", "1", "par/quet"),
        ("0a", "1", ""),
    ],
)
def test_staged_name_parts_are_validated(batch: str, part: str, suffix: str) -> None:
    with pytest.raises(ValueError, match="is not valid in the name of a file"):
        names.staged_name(10, batch, part, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000010.json",
        "00000000000000000010.parquet",
        "00000000000000000000-0a-1.parquet",
        "10-0a-1.parquet",
        "00000000000000000010-0a.parquet",
        "00000000000000000010-xy-1.parquet",
        "00000000000000000010-0a-1",
        "00000000000000000010-0a-1.parquet.crc",
        ".00000000000000000010-0a-1.parquet",
    ],
)
def test_foreign_name_is_not_a_staged_file(name: str) -> None:
    assert names.staged_record_number(name) is None
