"""Checks that each host that publishing connects to responds, so that one that a firewall blocks is named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ReadTimeoutError

from mirrorfeed.config import Config
from mirrorfeed.errors import first_line
from mirrorfeed.monitor.rules import Finding
from mirrorfeed.monitor.setup_check import failed, failed_with, passed
from mirrorfeed.runtime.addresses import BadProxy, check_proxy
from mirrorfeed.runtime.credentials import ServicePrincipal

LOGIN = "https://login.microsoftonline.com"
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Host:
    address: str
    """With https, and no path."""
    what_for: str


def hosts(config: Config, environment: Mapping[str, str] = os.environ) -> tuple[Host, ...]:
    """Those that a configuration needs beside the Databricks workspace; none for a landing zone that is a folder."""
    if config.onelake is None:
        return ()
    from mirrorfeed.mirror.fabric.client import ENDPOINT as API
    from mirrorfeed.storage.onelake import ENDPOINT, blob_endpoint

    files = config.endpoint or ENDPOINT
    found = {
        files: "OneLake: writing, renaming, listing",
        blob_endpoint(files): "OneLake: creating records, reading",
        config.fabric_endpoint or API: "Fabric: create, start, status, rebuild",
    }
    if isinstance(config.credential, ServicePrincipal):
        # A managed identity and a service credential log in elsewhere: the check of the credential tells.
        authority = config.credential.authority or environment.get("AZURE_AUTHORITY_HOST") or LOGIN
        found.setdefault(authority if "://" in authority else f"https://{authority}", "Entra ID: logging in")
    return tuple(Host(address.rstrip("/"), what_for) for address, what_for in found.items())


def check_hosts(config: Config, seconds: float = _SECONDS) -> Iterator[Finding]:
    for host in hosts(config):
        yield check_host(host, config.ca_file, seconds)


def check_host(host: Host, ca_file: str | None = None, seconds: float = _SECONDS) -> Finding:
    """Any response is good: other checks find missing permissions."""
    what = f"response of {host.address}"
    try:
        check_proxy()
        requests.head(host.address, timeout=seconds, verify=ca_file or True, allow_redirects=False)
    except BadProxy as error:
        return failed_with(what, error)
    except (requests.RequestException, HTTPError, OSError) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fix = "Set `ca_file` to the certificates of the proxy that inspects traffic, or exclude this host from it."
            return failed(what, f"its certificate is not trusted here ({_said(error)})", fix)
        fix = f"Allow it in the firewall, or in the network policy of serverless compute ({host.what_for})."
        return failed(what, _reason(error, seconds), fix)
    return passed(what, host.what_for)


def _reason(error: Exception, seconds: float) -> str:
    match _cause(error):
        case NameResolutionError():
            return "its name cannot be resolved here"
        case NewConnectionError():  # a kind of the next one
            return f"there is no connection ({_said(error)})"
        case ConnectTimeoutError() | ReadTimeoutError():
            return f"no response within {seconds:g} seconds"
        case _:
            return f"the request failed ({_said(error)})"


def _cause(error: Exception) -> object:
    return getattr(error.args[0], "reason", error.args[0]) if error.args else error


def _said(error: Exception) -> str:
    """The last part of the innermost sentence, which names the cause."""
    return first_line(str(_cause(error))).rpartition("] ")[2].rstrip(")'\"")[:200]
