"""Privileges and hosts that a configuration needs, and the findings when they are missing."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import pytest
from databricks.sdk.errors import Unauthenticated

from fixtures.fakes import RecordingGrants
from fixtures.onelake import OneLake
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.mirror.fabric import client_of
from mirrorfeed.monitor.findings import Finding, Severity
from mirrorfeed.monitor.platform_checks import Rights, check_host, check_rights, required_hosts, required_rights
from mirrorfeed.runtime.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal

ZONE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
ORDERS = ("main", "sales", "orders")


def config(folder: Path, *sources: str, zone: str = "./zone", more: str = "") -> Config:
    tables = "".join(f"  - {{source: {source}, target: t{n}, keys: [id]}}\n" for n, source in enumerate(sources))
    (folder / "mirrorfeed.yml").write_text(f"landing_zone: {zone}\n{more}tables:\n{tables}")
    return load(folder / "mirrorfeed.yml")


def test_reading_a_table_needs_catalog_schema_and_table_privileges(tmp_path: Path) -> None:
    assert list(required_rights(config(tmp_path, "main.sales.orders", "main.sales.lines")).items()) == [
        (("CATALOG", ("main",)), ["USE_CATALOG"]),
        (("SCHEMA", ("main", "sales")), ["USE_SCHEMA"]),
        (("TABLE", ORDERS), ["SELECT"]),
        (("TABLE", ("main", "sales", "lines")), ["SELECT"]),
    ]


@pytest.mark.parametrize(
    ("zone", "more", "expected"),
    [
        ("./zone", "", set()),
        ("./zone", "ledger: ./ledger\n", set()),
        ("./zone", "ledger: main.ours.ledger\n", {"CREATE_TABLE on schema", "SELECT on schema", "MODIFY on schema"}),
        ("/Volumes/main/ours/landing/here", "", {"READ_VOLUME on volume", "WRITE_VOLUME on volume"}),
        (ZONE, "credential: {service_credential: fabric}\n", {"ACCESS on credential"}),
        (ZONE, "staging_path: /Volumes/main/ours/staging\n", {"READ_VOLUME on volume", "WRITE_VOLUME on volume"}),
        (ZONE, "", set()),
    ],
)
def test_other_privileges_depend_on_the_locations(tmp_path: Path, zone: str, more: str, expected: set[str]) -> None:
    found = required_rights(config(tmp_path, "./orders", zone=zone, more=more))
    privileges = {f"{each} on {kind.lower()}" for (kind, _), grants in found.items() for each in grants}
    assert {each for each in privileges if not each.startswith("USE_")} == expected


def checked(workspace: RecordingGrants, rights: Rights) -> list[Finding]:
    return list(check_rights(lambda: workspace, rights))  # type: ignore[arg-type, return-value]


SELECT = {("TABLE", ORDERS): ["SELECT"]}


@pytest.mark.parametrize(
    ("grants", "owners", "state"),
    [
        ({"publisher": ["SELECT"]}, {}, Severity.OK),
        ({"someone": ["MODIFY"], "engineers": ["SELECT"]}, {}, Severity.OK),
        ({"account users": ["ALL_PRIVILEGES"]}, {}, Severity.OK),
        ({}, {"main.sales.orders": "engineers"}, Severity.OK),
        ({"publisher": ["MODIFY"], "someone": ["SELECT"]}, {}, Severity.WRONG),
    ],
)
def test_privilege_is_held_directly_by_a_group_by_all_or_by_the_owner(
    grants: dict[str, list[str]], owners: dict[str, str], state: Severity
) -> None:
    workspace = RecordingGrants("publisher", ["engineers"], {("TABLE", "main.sales.orders"): grants}, owners)
    _, found = checked(workspace, SELECT)
    assert (found.name, found.severity) == ("SELECT on table main.sales.orders", state)


def test_missing_privilege_has_its_grant_statement() -> None:
    workspace = RecordingGrants("publisher", [], {("CATALOG", "my%23main"): {}})
    _, found = checked(workspace, {("CATALOG", ("my#main",)): ["USE_CATALOG"]})
    assert found.what == "not granted to this identity or its groups (nested groups were not checked)"
    assert found.fix == "GRANT USE CATALOG ON CATALOG `my#main` TO `publisher`"


def test_all_privileges_on_one_object_need_one_request() -> None:
    workspace = RecordingGrants("publisher", [], {("SCHEMA", "main.ours"): {"publisher": ["MODIFY"]}})
    rights = {("SCHEMA", ("main", "ours")): ["CREATE_TABLE", "MODIFY"]}
    assert [check.severity for check in checked(workspace, rights)] == [Severity.OK, Severity.WRONG, Severity.OK]
    assert workspace.requests == [("SCHEMA", "main.ours")]


def test_forbidden_request_is_reported_as_missing_in_one_line() -> None:
    _, found = checked(RecordingGrants("publisher", [], {}), SELECT)
    assert (found.severity, found.what) == (
        Severity.WRONG,
        "cannot be read: main.sales.orders is not yours to ask about",
    )


def test_refused_workspace_is_reported_once() -> None:
    class Closed(RecordingGrants):
        def me(self) -> NoReturn:
            raise Unauthenticated("Invalid access token")

    (found,) = checked(Closed("publisher", [], {}), SELECT)
    assert (found.name, found.severity, found.what) == ("workspace", Severity.WRONG, "Invalid access token")


@pytest.mark.parametrize(
    ("words", "shown"), [(("Timed out after 0:05:00",), "Timed out after 0:05:00"), ((), "TimeoutError")]
)
def test_privilege_without_a_response_is_missing_and_the_next_is_checked(words: tuple[str, ...], shown: str) -> None:
    class Slow(RecordingGrants):
        def do(self, method: str, path: str, **more: Any) -> dict[str, Any]:
            if "/SCHEMA/" in path:
                raise TimeoutError(*words)
            return super().do(method, path, **more)

    workspace = Slow("publisher", [], {("TABLE", "main.sales.orders"): {"publisher": ["SELECT"]}})
    _, schema, table = checked(workspace, {("SCHEMA", ("main", "sales")): ["USE_SCHEMA"], **SELECT})
    assert (schema.severity, schema.what) == (Severity.WRONG, f"cannot be read: {shown}")
    assert table.severity is Severity.OK


PUBLIC = ["onelake.dfs.fabric.microsoft.com", "onelake.blob.fabric.microsoft.com", "api.fabric.microsoft.com"]
LOGIN = "login.microsoftonline.com"


def principal(authority: str | None = None) -> ServicePrincipal:
    return ServicePrincipal("tenant", "application", Secret(env="NAME"), authority)


@pytest.mark.parametrize(
    ("credential", "expected"),
    [
        (principal(), [*PUBLIC, LOGIN]),
        (principal("https://login.microsoftonline.us/"), [*PUBLIC, "login.microsoftonline.us"]),
        (Default(), PUBLIC),
        (ServiceCredential("fabric"), PUBLIC),
    ],
    ids=str,
)
def test_required_hosts_depend_on_landing_zone_and_credential(credential: Credential, expected: list[str]) -> None:
    found = required_hosts(Config(landing_zone=ZONE, tables=(), credential=credential))
    assert list(found) == [f"https://{name}" for name in expected]


def test_configured_hosts_replace_the_public_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "login.chinacloudapi.cn")
    private = Config(
        landing_zone=ZONE,
        tables=(),
        endpoint="https://0f8f.z0f.dfs.fabric.microsoft.com",
        fabric_endpoint="https://private.example",
        credential=principal(),
    )
    assert list(required_hosts(private)) == [
        "https://0f8f.z0f.dfs.fabric.microsoft.com",
        "https://0f8f.z0f.blob.fabric.microsoft.com",
        "https://private.example",
        "https://login.chinacloudapi.cn",
    ]


def test_private_link_of_a_workspace_gives_the_hosts_their_names() -> None:
    config = Config(landing_zone=ZONE, tables=(), private_link=True)
    name = "https://0f8fad5bd9cb469fa16570867728950e.z0f"
    assert list(required_hosts(config)) == [
        f"{name}.dfs.fabric.microsoft.com",
        f"{name}.blob.fabric.microsoft.com",
        f"{name}.w.api.fabric.microsoft.com",
    ]
    assert client_of(config).endpoint == f"{name}.w.api.fabric.microsoft.com"
    with_endpoint = config.model_copy(update={"fabric_endpoint": "https://private.example"})
    assert client_of(with_endpoint).endpoint == "https://private.example"


def test_landing_zone_in_a_folder_needs_no_host() -> None:
    assert required_hosts(Config(landing_zone="/Volumes/main/mirrorfeed/landing", tables=())) == {}


def test_responding_host_passes_with_its_purpose(onelake: OneLake) -> None:
    settings = Config(
        landing_zone=ZONE,
        tables=(),
        endpoint=onelake.dfs,
        fabric_endpoint=f"https://{onelake.address}",
        ca_bundle=str(onelake.ca_bundle),
        credential=Default(),
    )
    assert [
        (check.name, check.severity, check.what)
        for check in (check_host(*each, settings.ca_bundle) for each in required_hosts(settings).items())
    ] == [
        (f"response of {onelake.dfs}", Severity.OK, "write, rename and list files in OneLake"),
        (
            f"response of {onelake.dfs.replace('.dfs.', '.blob.')}",
            Severity.OK,
            "create records and read files in OneLake",
        ),
        (f"response of https://{onelake.address}", Severity.OK, "manage the mirrored database in Fabric"),
    ]


FIX = "Allow this host in the firewall, or in the network policy of serverless compute. It is needed to read files."


def test_host_that_does_not_respond_is_named(dropping: str) -> None:
    check = check_host(dropping, "read files", seconds=0.2)
    assert (check.name, check.severity) == (f"response of {dropping}", Severity.WRONG)
    assert (check.what, check.fix) == ("no response within 0.2 seconds", FIX)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("https://nowhere.invalid", "this process cannot resolve the name of the host"),
        ("https://127.0.0.1:1", "no connection (Connection refused)"),
        ("https://a..b", "the request failed (Failed to parse: 'a..b', label empty or too long)"),
    ],
)
def test_unreachable_host_is_named_with_the_reason(address: str, reason: str) -> None:
    check = check_host(address, "read files", seconds=5)
    assert (check.name, check.severity) == (f"response of {address}", Severity.WRONG)
    assert (check.what, check.fix) == (reason, FIX)


def test_invalid_proxy_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://:0")
    check = check_host("https://127.0.0.1:1", "read files", seconds=5)
    assert check.severity is Severity.WRONG
    assert check.what.startswith("The environment variable HTTPS_PROXY is not the address of a proxy.")


def test_host_behind_an_inspecting_proxy_has_its_own_fix(onelake: OneLake, tmp_path: Path) -> None:
    check = check_host(onelake.dfs, "read files", seconds=5)
    assert check.severity is Severity.WRONG
    assert check.what.startswith("this process does not trust the certificate of the host (certificate verify failed: ")
    assert check.fix.startswith("Set `ca_bundle` to the certificates")


def test_host_that_closes_the_connection_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        check = check_host(f"https://127.0.0.1:{server.getsockname()[1]}", "read files", seconds=5)
    assert check.severity is Severity.WRONG
    assert check.what.startswith("the request failed (")
    assert check.fix == FIX
