"""JSON from shared locations: reading any content returns a valid value or reports damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.memory import MemoryStore
from mirrorfeed.archive.errors import invalid_plan
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.history import history_record as history_record
from mirrorfeed.landing import log_record, output_format
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.landing.names import Target
from mirrorfeed.monitor import alerts
from mirrorfeed.monitor.alert_channels import Alert
from mirrorfeed.monitor.doctor import Check
from mirrorfeed.monitor.findings import Finding, Severity
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.audit import audit_log
from mirrorfeed.storage.errors import invalid_prices
from mirrorfeed.storage.prices import Prices
from tests.archive.test_restore_plan import make_plan, priced
from tests.archive.test_restore_plan_costs import PRICES
from tests.history.test_history_record import BOTH
from tests.landing.test_log_record import RECORD, SELECTION
from tests.monitor.test_alert_state import NOW
from tests.raised import Expected, is_error
from tests.support.damaged_json import damaged


@dataclass(frozen=True)
class Kind:
    documents: list[bytes]
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes] | None
    errors: tuple[Expected, ...]


def _record(data: bytes) -> log_record.Record:
    found = log_record.parse(data, "x")
    assert found.at.tzinfo
    return found


def _read(data: bytes) -> object:
    """Read a complete log with this newest record."""
    store = MemoryStore()
    store.create("t/_mirrorfeed/log.json", b'{"log_id": "a"}')
    store.create(f"t/_mirrorfeed/a/{9:020d}.json", data)
    return TableLog(store, "t").read_view(), audit_log(store, Target(None, "t"))


def _log_id(data: bytes) -> object:
    store = MemoryStore()
    store.create("t/_mirrorfeed/log.json", data)
    return TableLog(store, "t").read_latest()


def _history(data: bytes) -> history_record.HistoryRecord:
    found = history_record.parse_record(data.decode(errors="surrogateescape"), "x")
    assert len(found.schema["fields"]) == len(found.columns)
    return found


def _loaded(load: Callable[[str], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        with TemporaryDirectory() as folder:
            path = Path(folder, "file.json")
            path.write_bytes(data)
            return load(str(path))

    return read


def _saved(plan: Plan) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        plan.save(str(path))
        return path.read_bytes()


def _alerts(data: bytes) -> list[Alert]:
    """Alerts of a run that reads this state."""
    store, sent = MemoryStore(), list[Alert]()
    store.create("alerts.json", data)
    problem = Finding(Severity.WRONG, "MF2102", "GAP", "a", "What.", "mirrorfeed x")
    check = Check({problem.key: problem})
    found = alerts.notify(store, "alerts.json", check, {"ops": sent.append}, NOW)
    warnings = [row.error for row in found if row.error]
    assert all(isinstance(each, DamagedFileError) for each in warnings)
    assert not warnings or [each for each in sent if not each.resolved_at]
    return found


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


_FIRST = {**json.loads(RECORD.to_json()), "from_version_exclusive": None, "partitions": ["day"], "build": "1"}
_NESTED = {"type": "struct", "fields": [{"name": "a", "type": {"type": "array", "elementType": "long"}}]}
_RECORDS = [
    RECORD.to_json(),
    _json(
        {
            **_FIRST,
            "format": 1,
            "columns": [{"name": "n", "type": "json", "nested": json.dumps(_NESTED), "dropped": False}],
            "follows": {"number": 8, "batch": "b", "etag": "0x1"},
            "read": {"rows": 3, "seconds": 1.5},
            "selection": {
                "columns": None,
                "exclude_columns": list(SELECTION.exclude_columns),
                "where": SELECTION.where,
                "rename": dict(SELECTION.rename),
                "cast": dict(SELECTION.cast),
            },
            "source_columns": {"id": "long"},
        }
    ),
]
KINDS = {
    "record": Kind(_RECORDS, _record, log_record.Record.to_json, (DamagedFileError, RecordTooNewError)),
    "newest record of a log": Kind(_RECORDS, _read, None, (DamagedFileError, RecordTooNewError)),
    "log.json": Kind([b'{"log_id": "0a"}'], _log_id, None, (DamagedFileError,)),
    "_metadata.json": Kind(
        [
            b'{"keyColumns": ["id"], "isUpsertDefaultRowMarker": true, "more": 1}',
            b'{"KeyColumns": ["a", "b"], "FileFormat": "DelimitedText", "FileFormatTypeProperties": {"NullValue": ""}}',
        ],
        lambda data: output_format.parse_metadata(data, "x"),
        _json,
        (DamagedFileError,),
    ),
    "alerts": Kind(
        [
            alerts.to_json(
                (
                    alerts.SentAlert("a", "GAP", NOW, None, {"ops": NOW}),
                    alerts.SentAlert("b", "OTHER", NOW - timedelta(days=1), NOW, {"ops": NOW}),
                )
            )
        ],
        _alerts,
        None,
        (),
    ),
    "record of a history": Kind(
        [BOTH[0].to_json().encode(), BOTH[1].to_json().encode()],
        _history,
        lambda found: found.to_json().encode(),
        (DamagedFileError,),
    ),
    "plan": Kind(
        [_saved(priced(make_plan(where="v = 'é'"))), _saved(make_plan())], _loaded(Plan.load), _saved, (invalid_plan,)
    ),
    "prices": Kind(
        [_json(PRICES)], _loaded(Prices.load), lambda one: one.model_dump_json().encode(), (invalid_prices,)
    ),
}


def check(kind: Kind, data: bytes) -> None:
    """Read a document, and check that it is either refused or written back unchanged."""
    try:
        found = kind.read(data)
        assert kind.write is None or kind.read(kind.write(found)) == found
    except MirrorfeedError as error:
        if not any(is_error(error, each) for each in kind.errors):
            raise


@pytest.mark.parametrize("name", KINDS)
def test_valid_documents_are_read(name: str) -> None:
    kind = KINDS[name]
    for document in kind.documents:
        assert kind.read(document)


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_damaged_documents_are_refused_by_one_error(name: str, data: st.DataObject) -> None:
    check(KINDS[name], data.draw(damaged(KINDS[name].documents)))


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=3_000)
@given(data=st.data())
def test_many_damaged_documents_are_refused_by_one_error(name: str, data: st.DataObject) -> None:
    check(KINDS[name], data.draw(damaged(KINDS[name].documents)))


@given(st.binary())
def test_arbitrary_bytes_are_not_a_record(data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        log_record.parse(data, "x")
