"""Responses of Fabric that differ from the documentation raise one kind of error."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorfeed.config.connections import FabricOptions
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.mirror.errors import (
    database_definition_unreadable,
    database_not_listed,
    fabric_response_invalid,
    no_sql_endpoint,
    not_an_open_mirror,
)
from mirrorfeed.mirror.fabric import MirroredDatabase, create
from mirrorfeed.mirror.fabric.client import FabricClient, FabricItem
from mirrorfeed.mirror.fabric.status_and_settings import find_differences
from tests.raised import raises
from tests.support.damaged_json import damaged

PLACE = FabricItem("w", "d")
_CONTENT = {"properties": {"source": {"type": "GenericMirror"}, "target": {"typeProperties": {"retentionInDays": 7}}}}
_TABLE = {
    "sourceSchemaName": "dbo",
    "sourceTableName": "t",
    "status": "Replicating",
    "metrics": {"processedRows": 5, "lastSyncDateTime": "2026-01-01T00:00:00Z"},
    "error": {"errorCode": "E", "message": "m"},
}
RESPONSES: dict[str, Any] = {
    "tables": {"data": [_TABLE]},
    "databases": {"value": [{"id": "i", "displayName": "n"}]},
    "endpoint": {
        "properties": {"sqlEndpointProperties": {"id": "e"}},
        "value": [{"tableName": "t", "status": "Success"}],
    },
    "definition": {
        "definition": {
            "parts": [{"path": "mirroring.json", "payload": base64.b64encode(json.dumps(_CONTENT).encode()).decode()}]
        }
    },
    "content": _CONTENT,
}


@dataclass
class FixedResponse(FabricClient):
    """A transport that returns the same body for each call."""

    body: bytes = b""

    def _send(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(status_code=200, headers={}, body=lambda: self.body)


def call_api(name: str, body: bytes) -> object:
    if name == "content":
        parts = [{"path": "mirroring.json", "payload": base64.b64encode(body).decode()}]
        body = json.dumps({"definition": {"parts": parts}}).encode()
    api = FixedResponse(PLACE, Any, body=body)
    match name:
        case "tables":
            return [str(each) for each in MirroredDatabase(api).tables()]
        case "databases":
            return create(api, "other", FabricOptions(), seconds=0.0)
        case "endpoint":
            return MirroredDatabase(api).refresh()
    return find_differences(MirroredDatabase(api).definition()[0], FabricOptions())


def check(name: str, body: bytes) -> None:
    expected = (
        fabric_response_invalid,
        database_definition_unreadable,
        not_an_open_mirror,
        no_sql_endpoint,
        database_not_listed,
    )
    try:
        call_api(name, body)
    except MirrorfeedError as error:
        if not any(each.matches(error) for each in expected):
            raise


@pytest.mark.parametrize("name", RESPONSES)
@given(data=st.data())
def test_damaged_response_is_one_error(name: str, data: st.DataObject) -> None:
    check(name, data.draw(damaged([json.dumps(RESPONSES[name]).encode()])))


@pytest.mark.soak
@pytest.mark.parametrize("name", RESPONSES)
@settings(max_examples=3_000)
@given(data=st.data())
def test_many_damaged_responses_are_one_error(name: str, data: st.DataObject) -> None:
    check(name, data.draw(damaged([json.dumps(RESPONSES[name]).encode()])))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"data": 5}, "data: Input should be a valid array"),
        ({"data": [5]}, "data.0: Input should be"),
        ({"data": [{**_TABLE, "metrics": [1]}]}, "data.0.metrics: Input should be"),
        ({"data": [{**_TABLE, "metrics": {"processedRows": True}}]}, "processedRows: Input should be a valid integer"),
        ({"data": [], "continuationToken": "again"}, "it returns the same page twice"),
    ],
)
def test_response_with_wrong_types_is_one_error(body: dict[str, Any], reason: str) -> None:
    with raises(fabric_response_invalid) as caught:
        call_api("tables", json.dumps(body).encode())
    assert reason in caught.value.problem
