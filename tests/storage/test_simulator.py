"""The OneLake simulator is as strict as the documentation of the service."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient
from azure.storage.filedatalake import DataLakeFileClient, FileSystemClient

from fixtures.onelake import DATABASE, WORKSPACE, Fault, How, OneLake
from mirrorfeed.runtime.login import token_credential
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import PathMissingError, StorageUnavailableError
from mirrorfeed.storage.http import API_VERSION, client_options
from mirrorfeed.storage.onelake_errors import onelake_request_refused
from tests.raised import raises

ROOT = f"{DATABASE}/Files/LandingZone"


def write(store: Store, path: str, data: bytes) -> None:
    with store.open_write(path) as sink:
        sink.write(data)


def options(onelake: OneLake) -> dict[str, Any]:
    ca_bundle = str(onelake.ca_bundle)
    credential = token_credential(onelake.principal(), ca_bundle)
    return {"credential": credential, "connection_verify": ca_bundle, "api_version": API_VERSION, "retry_total": 0}


def blob(onelake: OneLake, path: str, endpoint: str | None = None) -> BlobClient:
    return BlobClient(endpoint or onelake.blob, WORKSPACE, f"{ROOT}/{path}", **options(onelake))


def file(onelake: OneLake, path: str) -> DataLakeFileClient:
    return DataLakeFileClient(onelake.dfs, WORKSPACE, f"{ROOT}/{path}", **options(onelake))


def test_every_call_has_the_pinned_api_version_and_right_endpoint(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("t/a", b"x")
    write(store, "t/_x", b"x")
    store.rename("t/_x", "u/x")
    store.list("t")
    with store.open_read("t/a") as source:
        source.read()
    store.remove("t/a")
    store.remove_folder("u")

    called = [call for call in onelake.calls if call.verb not in ("token", "discovery")]
    assert {
        "put blob",
        "create",
        "append",
        "flush",
        "properties",
        "rename",
        "create folder",
        "list",
        "read",
        "delete",
    } == {call.verb for call in called}
    assert {call.headers.get("x-ms-version") for call in called} == {API_VERSION}


@pytest.mark.parametrize("verb", ["list", "create"])
def test_unknown_api_version_is_refused_with_its_header(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def with_unknown_version(*facts: Any) -> dict[str, Any]:
        return client_options(*facts) | {"headers": {"x-ms-version": "2030-01-01"}}

    monkeypatch.setattr("mirrorfeed.storage.onelake.client_options", with_unknown_version)
    store = onelake.store()
    store._clients.landing_zone_exists = True  # skip the check of the landing zone
    with raises(
        onelake_request_refused, match=r"\(400 InvalidHeaderValue: .* \(header x-ms-version = 2030-01-01\)\)\."
    ):
        store.list("t") if verb == "list" else store.create("t/a", b"")


def test_undocumented_headers_and_parameters_are_refused_by_name(onelake: OneLake) -> None:
    with pytest.raises(HttpResponseError) as header:
        file(onelake, "t/x").create_file(headers={"x-ms-odd": "1"})
    with pytest.raises(HttpResponseError) as parameter:
        file(onelake, "t/x").create_file(params={"odd": "1"})

    assert (header.value.status_code, header.value.additional_info) == (
        400,
        {"HeaderName": "x-ms-odd", "HeaderValue": "1"},
    )
    assert (parameter.value.status_code, parameter.value.additional_info) == (
        400,
        {"QueryParameterName": "odd", "QueryParameterValue": "1"},
    )


def test_blob_calls_are_refused_at_the_dfs_endpoint(onelake: OneLake) -> None:
    with pytest.raises(HttpResponseError, match=r"put blob is not a call of onelake\.dfs\.localhost"):
        blob(onelake, "t/x", onelake.dfs).upload_blob(b"")


def test_file_cannot_be_written_through_both_endpoints(onelake: OneLake) -> None:
    store = onelake.store()
    write(store, "t/dfs", b"x")
    store.create("t/blob", b"x")

    with pytest.raises(HttpResponseError, match="BlobOperationNotSupported"):
        blob(onelake, "t/dfs").stage_block("AAAA", b"x")
    with pytest.raises(HttpResponseError, match="InvalidAppendOperation"):
        file(onelake, "t/blob").append_data(b"x", 1, 1)
    blob(onelake, "t/blob").stage_block("AAAA", b"x")
    store.replace("t/dfs", b"whole")  # rewriting a file works through either endpoint
    assert (store.read("t/dfs"), store.read("t/blob")) == (b"whole", b"x")


def test_continuation_token_is_valid_only_for_its_listing(onelake: OneLake) -> None:
    store = onelake.store()
    for name in ("t/1", "t/2", "u/1"):
        store.create(name, b"")
    onelake.server.page_size = 1
    assert [entry.name for entry in store.list("t")] == ["1", "2"]

    token = next(call.query["continuation"] for call in onelake.calls if "continuation" in call.query)
    assert set("+/=&% ?#") <= set(token)
    files = FileSystemClient(onelake.dfs, WORKSPACE, **options(onelake))
    pages = files.get_paths(f"{ROOT}/u", recursive=False).by_page(token)
    with pytest.raises(HttpResponseError, match="InvalidQueryParameterValue"):
        next(pages)


@pytest.mark.parametrize("keeps", [False, True])
def test_renamed_file_keeps_its_etag_depending_on_the_service(onelake: OneLake, keeps: bool) -> None:
    onelake.files.preserves_etags = keeps
    store = onelake.store()
    write(store, "t/_x", b"x")
    (before,) = store.list("t")
    store.rename("t/_x", "t/1")

    assert (store.list("t")[0].etag == before.etag) is keeps


@pytest.mark.parametrize("late", [2, None], ids=["soon", "last"])
@pytest.mark.parametrize("verb", ["append", "flush", "rename", "delete"])
def test_call_delivered_after_its_retry_changes_nothing(onelake: OneLake, verb: str, late: int | None) -> None:
    store = onelake.store(part_bytes=4)
    onelake.server.faults.add(Fault(verb, How.LATE, late=late))
    write(store, "t/_x", b"whole content")
    store.rename("t/_x", "t/1")
    store.create("t/gone", b"")
    store.remove("t/gone")
    onelake.server.deliver()

    assert [(entry.name, entry.size) for entry in store.list("t")] == [("1", 13)]
    assert store.read("t/1") == b"whole content"
    assert onelake.verbs().count(verb) == {"append": 5, "flush": 2, "rename": 2, "delete": 2}[verb]


def test_late_creation_leaves_an_empty_file_under_an_abandoned_name(onelake: OneLake) -> None:
    store = onelake.store()
    onelake.server.faults.add(Fault("create", How.LATE))
    with pytest.raises(StorageUnavailableError):
        store.open_write("t/_x")
    with pytest.raises(PathMissingError):
        store.read("t/_x")
    onelake.server.deliver()

    assert store.read("t/_x") == b""
