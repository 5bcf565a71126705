"""Checks of the platform: privileges in Unity Catalog, connections to hosts, and features of Spark and volumes."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

import requests
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ReadTimeoutError

from mirrorfeed.config.model import Config
from mirrorfeed.errors import first_line
from mirrorfeed.landing.names import join_name
from mirrorfeed.monitor.findings import Finding, attempt, failed, failed_with, not_applicable, not_checked, passed
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.runtime.credentials import ServiceCredential, ServicePrincipal, check_proxy
from mirrorfeed.runtime.errors import InvalidProxyError
from mirrorfeed.runtime.spark_session import refused_settings
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.identifier import quote
from mirrorfeed.storage import VOLUMES

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

LOGIN = "https://login.microsoftonline.com"
_SECONDS = 10.0
_EVERYBODY = "account users"
_PRIVILEGES = "privileges in Unity Catalog"
Rights = Mapping[tuple[str, tuple[str, ...]], Sequence[str]]
"""Privileges on objects in Unity Catalog. The key is the type of an object, such as CATALOG, and its name in parts."""
_ROWS = 3
_OPTIONAL_PACKAGES = ("pyspark", "databricks-connect", "deltalake", "boto3")


def required_rights(config: Config) -> Rights:
    """Return the privileges that a configuration needs in Unity Catalog. A catalog is listed before its schemas."""
    rights: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def add(kind: str, parts: tuple[str, ...], *privileges: str) -> None:
        if kind != "CREDENTIAL":
            rights.setdefault(("CATALOG", parts[:1]), ["USE_CATALOG"])
            rights.setdefault(("SCHEMA", parts[:2]), ["USE_SCHEMA"])
        listed = rights.setdefault((kind, parts), [])
        listed += [each for each in privileges if each not in listed]

    for table in config.tables:
        if table.source.is_in_unity_catalog:
            add("TABLE", table.source.parts, "SELECT")
    if config.ledger and config.ledger.is_in_unity_catalog:
        add("SCHEMA", config.ledger.parts[:2], "CREATE_TABLE", "SELECT", "MODIFY")
    for path in (config.landing_zone, config.staging_path or ""):
        if path.startswith(VOLUMES):
            add("VOLUME", tuple(path.removeprefix(VOLUMES).split("/")[:3]), "READ_VOLUME", "WRITE_VOLUME")
    if isinstance(config.credential, ServiceCredential):
        add("CREDENTIAL", (config.credential.name,), "ACCESS")
    return rights


def check_rights(workspace: Callable[[], WorkspaceClient], rights: Rights) -> Iterator[Finding]:
    """Check that the user, or a group with the user as direct member, has the privileges `rights`. Yield findings."""
    from databricks.sdk.errors.base import DatabricksError

    if not rights:
        yield not_applicable(_PRIVILEGES, "the configuration names nothing in Unity Catalog")
        return
    try:
        client = workspace()
        me = client.current_user.me()
    except ValueError:
        securables = ", ".join(f"{kind.lower()} {join_name(parts)}" for kind, parts in rights)
        yield not_checked(_PRIVILEGES, f"no workspace is configured here: {securables}")
        return
    except Exception as error:
        yield failed_with("workspace", error)
        return
    names = {me.user_name, *(group.display for group in me.groups or ()), _EVERYBODY}
    yield passed("workspace", f"logged in as {me.user_name}")
    for (kind, parts), privileges in rights.items():
        path = ".".join(percent_encoded(part, safe="") for part in parts)  # the client does not escape names
        problem, owner, granted = "", None, set[str | None]()
        try:
            granted = {
                each.get("privilege")
                for assignment in _assignments(client, kind, path)
                if assignment.get("principal") in names
                for each in assignment.get("privileges") or ()
            }
            owner = None if kind == "CREDENTIAL" else _get(client, f"{kind.lower()}s/{path}").get("owner")
        except (DatabricksError, OSError) as error:  # the client raises OSError if there is no response
            problem = f"cannot be read: {first_line(str(error) or type(error).__name__)}"
        for privilege in privileges:
            check = f"{privilege} on {kind.lower()} {join_name(parts)}"
            if problem:
                yield failed(check, problem)
            elif owner in names:
                yield passed(check, f"{owner} is the owner")
            elif privilege in granted or "ALL_PRIVILEGES" in granted:
                yield passed(check)
            else:
                grantee = quote(me.user_name or "")
                grant = f"GRANT {privilege.replace('_', ' ')} ON {kind} {'.'.join(map(quote, parts))} TO {grantee}"
                reason = "not granted to this identity or its groups (nested groups were not checked)"
                yield failed(check, reason, grant)


def _assignments(workspace: WorkspaceClient, kind: str, full_name: str) -> Iterator[dict[str, Any]]:
    """Yield the effective grants on an object of Unity Catalog, from all pages of the response."""
    query: dict[str, Any] = {"max_results": 0}
    while True:
        page = _get(workspace, f"effective-permissions/{kind}/{full_name}", query)
        yield from page.get("privilege_assignments") or ()
        if not (token := page.get("next_page_token")):
            return
        query["page_token"] = token


def _get(workspace: WorkspaceClient, path: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Accept": "application/json"}
    content: Any = workspace.api_client.do("GET", f"/api/2.1/unity-catalog/{path}", query=query, headers=headers)
    return content or {}


def required_hosts(config: Config) -> Mapping[str, str]:
    """Return the addresses of the services outside Databricks that a configuration needs, and the purpose of each.

    The key is the address, and the value is the purpose. Empty if the landing zone is not in OneLake.
    """
    if config.onelake is None:
        return {}
    from mirrorfeed.mirror.fabric.client import ENDPOINT as API
    from mirrorfeed.storage.onelake import ENDPOINT, blob_endpoint

    files = config.files_endpoint or ENDPOINT
    addresses = {
        files: "write, rename and list files in OneLake",
        blob_endpoint(files): "create records and read files in OneLake",
        config.api_endpoint or API: "manage the mirrored database in Fabric",
    }
    if isinstance(config.credential, ServicePrincipal):
        # Other identities log in at other hosts, which the check of the credential calls.
        authority = config.credential.authority or os.environ.get("AZURE_AUTHORITY_HOST") or LOGIN
        addresses.setdefault(authority if "://" in authority else f"https://{authority}", "log in to Entra ID")
    return {address.rstrip("/"): purpose for address, purpose in addresses.items()}


def check_host(address: str, purpose: str, ca_bundle: str | None = None, seconds: float = _SECONDS) -> Finding:
    """Check whether the host responds with any HTTP status, and return the result. The result shows `purpose`."""
    check = f"response of {address}"
    try:
        check_proxy()
        requests.head(address, timeout=seconds, verify=ca_bundle or True, allow_redirects=False)
    except InvalidProxyError as error:
        return failed_with(check, error)
    except (requests.RequestException, HTTPError, OSError) as error:
        cause = getattr(error.args[0], "reason", error.args[0]) if error.args else error
        # The text after the last "] " names the cause.
        reason = first_line(str(cause)).rpartition("] ")[2].rstrip(")'\"")[:200]
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fix = (
                "Set `ca_bundle` to the certificates of the proxy that inspects traffic, or exclude this host from"
                " inspection."
            )
            return failed(check, f"this process does not trust the certificate of the host ({reason})", fix)
        match cause:
            case NameResolutionError():
                problem = "this process cannot resolve the name of the host"
            case NewConnectionError():  # a subclass of ConnectTimeoutError
                problem = f"no connection ({reason})"
            case ConnectTimeoutError() | ReadTimeoutError():
                problem = f"no response within {seconds:g} seconds"
            case _:
                problem = f"the request failed ({reason})"
        fix = (
            "Allow this host in the firewall, or in the network policy of serverless compute. It is needed to"
            f" {purpose}."
        )
        return failed(check, problem, fix)
    return passed(check, purpose)


def check_environment(spark: SparkSession) -> Finding:
    """Return a finding with the versions of mirrorfeed, the Databricks runtime, Spark, Python and packages."""
    runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION")
    versions = [
        f"mirrorfeed {this_build()}",
        f"Databricks runtime {runtime}" if runtime else "no Databricks runtime",
        f"Spark {spark.version}",
        f"Python {platform.python_version()}",
    ]
    packages = list[str]()
    with suppress(importlib.metadata.PackageNotFoundError):  # mirrorfeed is not installed as a package
        packages = [line for line in importlib.metadata.requires("mirrorfeed") or () if "extra ==" not in line]
    for name in (*(re.split(r"[^\w.-]", line)[0] for line in packages), *_OPTIONAL_PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    return passed("environment", ", ".join(versions))


def check_settings(spark: SparkSession) -> Finding:
    """Return a finding with the Spark settings that mirrorfeed must change, but cannot change in this session."""
    check = "settings of the Spark session"
    if refused := refused_settings(spark):
        settings = ", ".join(f"{name} ({value})" for name, value in refused.items())
        return not_checked(check, f"cannot be changed: {settings}")
    return passed(check, "all can be changed")


def check_spark_writes(spark: SparkSession, area: StagingArea) -> Iterator[Finding]:
    """Test Spark's `observe` and `inputFiles` with files in the staging area. Yield a finding for each test."""
    folder, observation = f"{area.root}/{uuid.uuid4().hex}-probe", Observation()

    def observe() -> str:
        spark.range(_ROWS).observe(observation, F.count("*").alias("rows")).write.parquet(folder)
        rows = dict(observation.get).get("rows")
        if rows not in (None, _ROWS):
            raise ValueError(f"counts {rows} of {_ROWS} rows")
        return "returns no metrics" if rows is None else f"counts {rows} of {_ROWS} rows"

    def input_files() -> str:
        uris = sorted(uri.replace(folder, "<folder>", 1) for uri in spark.read.parquet(folder).inputFiles())
        if not uris:
            raise ValueError("returns no file")
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", ", ".join(uris))

    try:
        observed = attempt("`observe` of a write", observe)
        yield observed
        if observed.ok:
            yield attempt("`inputFiles` of written files", input_files)
    finally:
        area.remove(folder)


def check_mount(check: str, volume: str) -> Finding:
    """Return a finding with the file operations that the mount of a volume does not support.

    Missing operations are not a problem: mirrorfeed only reads through the mount, and reading needs none of them.
    """
    if not os.path.isdir(volume):
        return not_checked(check, "it is not mounted here, so mirrorfeed uses the Files API")
    folder = Path(volume, f"_mirrorfeed_setup-{uuid.uuid4().hex}")

    def find_refusals() -> str:
        folder.mkdir()
        file, refused = folder / "file", []
        file.write_bytes(b"content")
        for name, action in _ACTIONS.items():
            try:
                action(file)
            except OSError as error:
                refused.append(f"{name} ({errno.errorcode.get(error.errno or 0, error.errno)})")
        if len({os.stat(file).st_ino for _ in range(3)}) > 1:
            refused.append("stable inode numbers")
        return f"lacks {', '.join(refused)}" if refused else "lacks nothing"

    try:
        return attempt(check, find_refusals)
    finally:
        for path in (*folder.glob("*"), folder):  # `shutil.rmtree` needs stable inode numbers
            with suppress(OSError):
                path.rmdir() if path == folder else path.unlink()


def _fsync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _write(mode: str, file: Path) -> None:
    with file.open(mode) as opened:
        opened.write(b"x")


def _rename(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"other")
    os.rename(other, file.with_name("renamed"))


_ACTIONS: Mapping[str, Callable[[Path], object]] = {
    "fsync": _fsync,
    "hard links": lambda file: os.link(file, file.with_name("link")),
    "appends": partial(_write, "ab"),
    "random writes": partial(_write, "r+b"),
    "renames": _rename,
}
