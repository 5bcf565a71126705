"""The hosts that publishing needs, and which of them is told to be missing."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

import pytest

from fixtures.onelake import OneLake
from mirrorfeed.config import Config
from mirrorfeed.monitor.rules import Weight
from mirrorfeed.monitor.setup_hosts import Host, check_host, check_hosts, hosts
from mirrorfeed.runtime.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal

ZONE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
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
def test_onelake_needs_two_hosts_fabric_one_and_a_service_principal_the_one_where_it_logs_in(
    credential: Credential, expected: list[str]
) -> None:
    found = hosts(Config(landing_zone=ZONE, tables=(), credential=credential), {})
    assert [host.address for host in found] == [f"https://{name}" for name in expected]


def test_hosts_of_the_configuration_and_the_environment_take_the_place_of_the_public_ones() -> None:
    private = Config(
        landing_zone=ZONE,
        tables=(),
        endpoint="https://0f8f.z0f.dfs.fabric.microsoft.com",
        fabric_endpoint="https://private.example",
        credential=principal(),
    )
    assert [host.address for host in hosts(private, {"AZURE_AUTHORITY_HOST": "login.chinacloudapi.cn"})] == [
        "https://0f8f.z0f.dfs.fabric.microsoft.com",
        "https://0f8f.z0f.blob.fabric.microsoft.com",
        "https://private.example",
        "https://login.chinacloudapi.cn",
    ]


def test_a_landing_zone_that_is_a_folder_needs_no_host() -> None:
    assert list(check_hosts(Config(landing_zone="/Volumes/main/mirrorfeed/landing", tables=()))) == []


def test_each_host_that_answers_is_told_with_what_it_is_for(onelake: OneLake) -> None:
    config = Config(
        landing_zone=ZONE,
        tables=(),
        endpoint=onelake.dfs,
        fabric_endpoint=f"https://{onelake.address}",
        ca_file=str(onelake.ca_file),
        credential=Default(),
    )
    assert [(check.name, check.weight, check.what) for check in check_hosts(config)] == [
        (f"response of {onelake.dfs}", Weight.OK, "OneLake: writing, renaming, listing"),
        (f"response of {onelake.dfs.replace('.dfs.', '.blob.')}", Weight.OK, "OneLake: creating records, reading"),
        (f"response of https://{onelake.address}", Weight.OK, "Fabric: create, start, status, rebuild"),
    ]


FIX = "Allow it in the firewall, or in the network policy of serverless compute (files)."


def test_a_host_that_lets_connections_wait_is_named(dropping: str) -> None:
    check = check_host(Host(dropping, "files"), seconds=0.2)
    assert (check.name, check.weight) == (f"response of {dropping}", Weight.WRONG)
    assert (check.what, check.fix) == ("no response within 0.2 seconds", FIX)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("https://nowhere.invalid", "its name cannot be resolved here"),
        ("https://127.0.0.1:1", "there is no connection (Connection refused)"),
        ("https://a..b", "the request failed (Failed to parse: 'a..b', label empty or too long)"),
    ],
)
def test_a_host_that_cannot_be_reached_is_named_with_the_reason(address: str, reason: str) -> None:
    check = check_host(Host(address, "files"), seconds=5)
    assert (check.name, check.weight) == (f"response of {address}", Weight.WRONG)
    assert (check.what, check.fix) == (reason, FIX)


def test_a_proxy_that_is_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://:0")
    check = check_host(Host("https://127.0.0.1:1", "files"), seconds=5)
    assert check.weight is Weight.WRONG
    assert check.what.startswith("The environment variable HTTPS_PROXY is not the address of a proxy.")


def test_a_host_behind_something_that_reads_along_is_told_apart(onelake: OneLake, tmp_path: Path) -> None:
    check = check_host(Host(onelake.dfs, "files"), seconds=5)
    assert check.weight is Weight.WRONG
    assert check.what.startswith("its certificate is not trusted here (certificate verify failed: ")
    assert check.fix.startswith("Set `ca_file` to the certificates")


def test_a_host_that_takes_a_connection_and_breaks_it_off_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        check = check_host(Host(f"https://127.0.0.1:{server.getsockname()[1]}", "files"), seconds=5)
    assert check.weight is Weight.WRONG
    assert check.what.startswith("the request failed (")
    assert check.fix == FIX
