"""Checks of the platform: privileges in Unity Catalog, hosts behind a firewall, and parts that differ by workspace.

The findings of the live checks contain facts that help to fix mirrorfeed. They contain no names of tables and people.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

import requests
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ReadTimeoutError

from mirrorfeed.config.model import Config
from mirrorfeed.display.redact import redact
from mirrorfeed.errors import first_line
from mirrorfeed.landing.names import join_name
from mirrorfeed.monitor.findings import Finding, attempt, failed, failed_with, not_checked, passed
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.runtime.addresses import BadProxy, check_proxy
from mirrorfeed.runtime.credentials import ServiceCredential, ServicePrincipal
from mirrorfeed.runtime.spark_session import refused_settings
from mirrorfeed.runtime.version import this_build
from mirrorfeed.storage import VOLUMES

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

LOGIN = "https://login.microsoftonline.com"
_SECONDS = 10.0
_EVERYBODY = "account users"
_PRIVILEGES = "privileges in Unity Catalog"
Rights = Mapping[tuple[str, tuple[str, ...]], Sequence[str]]
"""Privileges by securable in Unity Catalog: kind (such as CATALOG or VOLUME) and name."""
_ROWS = 3
_OPTIONAL = ("pyspark", "databricks-connect", "deltalake", "boto3")


def needed(config: Config) -> Rights:
    """Return the rights that a configuration needs, catalogs before their contents."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def add(kind: str, parts: tuple[str, ...], *privileges: str) -> None:
        if kind != "CREDENTIAL":
            found.setdefault(("CATALOG", parts[:1]), ["USE_CATALOG"])
            found.setdefault(("SCHEMA", parts[:2]), ["USE_SCHEMA"])
        listed = found.setdefault((kind, parts), [])
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
    return found


def check_rights(workspace: Callable[[], WorkspaceClient], rights: Rights) -> Iterator[Finding]:
    """Compare the rights with the effective grants. Does not know membership in nested groups."""
    if not rights:
        yield not_checked(_PRIVILEGES, "the configuration names nothing in Unity Catalog")
        return
    try:
        client = workspace()
        me = client.current_user.me()
    except ValueError:
        securables = ", ".join(_in_words(*securable) for securable in rights)
        yield not_checked(_PRIVILEGES, f"no workspace is configured here: {securables}")
        return
    except Exception as error:
        yield failed_with("workspace", error)
        return
    names = {me.user_name, *(group.display for group in me.groups or ()), _EVERYBODY}
    yield passed("workspace", f"logged in as {me.user_name}")
    for (kind, parts), wanted in rights.items():
        yield from _check_securable(client, kind, parts, wanted, names, str(me.user_name))


def _in_words(kind: str, parts: tuple[str, ...]) -> str:
    return f"{kind.lower()} {join_name(parts)}"


def _check_securable(
    workspace: WorkspaceClient,
    kind: str,
    parts: tuple[str, ...],
    wanted: Sequence[str],
    names: set[str | None],
    me: str,
) -> Iterator[Finding]:
    from databricks.sdk.errors.base import DatabricksError

    # The client does not escape names in addresses.
    full_name = ".".join(percent_encoded(part, safe="") for part in parts)
    try:
        granted = {
            given.get("privilege")
            for assignment in _assignments(workspace, kind, full_name)
            if assignment.get("principal") in names
            for given in assignment.get("privileges") or ()
        }
        owner = None if kind == "CREDENTIAL" else _get(workspace, f"{kind.lower()}s/{full_name}").get("owner")
    except (DatabricksError, OSError) as error:  # the client raises OSError if there is no response
        reason = f"cannot be read: {redact(str(error).splitlines()[0]) if str(error) else type(error).__name__}"
        yield from (failed(f"{privilege} on {_in_words(kind, parts)}", reason) for privilege in wanted)
        return
    for privilege in wanted:
        what = f"{privilege} on {_in_words(kind, parts)}"
        if owner in names:
            yield passed(what, f"{owner} is the owner")
        elif privilege in granted or "ALL_PRIVILEGES" in granted:
            yield passed(what)
        else:
            quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
            grant = f"GRANT {privilege.replace('_', ' ')} ON {kind} {quoted} TO `{me}`"
            yield failed(what, "not granted to this identity or its groups (nested groups were not checked)", grant)


def _assignments(workspace: WorkspaceClient, kind: str, full_name: str) -> Iterator[dict[str, Any]]:
    """Yield effective grants, page by page. The client's own method has no pages in older releases."""
    query: dict[str, Any] = {"max_results": 0}
    while True:
        page = _get(workspace, f"effective-permissions/{kind}/{full_name}", query)
        yield from page.get("privilege_assignments") or ()
        if not (token := page.get("next_page_token")):
            return
        query["page_token"] = token


def _get(workspace: WorkspaceClient, path: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    accepted = {"Accept": "application/json"}
    found: Any = workspace.api_client.do("GET", f"/api/2.1/unity-catalog/{path}", query=query, headers=accepted)
    return found or {}


def hosts(config: Config, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the HTTPS addresses that a configuration needs in addition to the Databricks workspace, with their
    purposes.

    Returns no addresses if the landing zone is a folder.
    """
    if config.onelake is None:
        return {}
    from mirrorfeed.mirror.fabric.client import ENDPOINT as API
    from mirrorfeed.storage.onelake import ENDPOINT, blob_endpoint

    files = config.files_endpoint or ENDPOINT
    found = {
        files: "write, rename and list files in OneLake",
        blob_endpoint(files): "create records and read files in OneLake",
        config.api_endpoint or API: "manage the mirrored database in Fabric",
    }
    if isinstance(config.credential, ServicePrincipal):
        # Managed identities and service credentials log in at other hosts. The check of the credential tests these
        # hosts.
        authority = config.credential.authority or environment.get("AZURE_AUTHORITY_HOST") or LOGIN
        found.setdefault(authority if "://" in authority else f"https://{authority}", "log in to Entra ID")
    return {address.rstrip("/"): purpose for address, purpose in found.items()}


def check_host(address: str, purpose: str, ca_bundle: str | None = None, seconds: float = _SECONDS) -> Finding:
    """Check that the host responds. The content of the response is ignored, because other checks find missing
    permissions."""
    what = f"response of {address}"
    try:
        check_proxy()
        requests.head(address, timeout=seconds, verify=ca_bundle or True, allow_redirects=False)
    except BadProxy as error:
        return failed_with(what, error)
    except (requests.RequestException, HTTPError, OSError) as error:
        cause = getattr(error.args[0], "reason", error.args[0]) if error.args else error
        # The last part of the innermost sentence names the cause.
        reason = first_line(str(cause)).rpartition("] ")[2].rstrip(")'\"")[:200]
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fix = (
                "Set `ca_bundle` to the certificates of the proxy that inspects traffic, or exclude this host from"
                " inspection."
            )
            return failed(what, f"this process does not trust the certificate of the host ({reason})", fix)
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
        return failed(what, problem, fix)
    return passed(what, purpose)


def check_environment(spark: SparkSession, environment: Mapping[str, str] = os.environ) -> Finding:
    """Report the versions in the environment of this process, and whether it was built from a lock file."""
    runtime = environment.get("DATABRICKS_RUNTIME_VERSION")
    found = [
        f"mirrorfeed {this_build()}",
        f"Databricks runtime {runtime}" if runtime else "no Databricks runtime",
        f"Spark {spark.version}",
        f"Python {platform.python_version()}",
    ]
    for name in (*_required(), *_OPTIONAL):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return passed("environment", ", ".join(found))


def _required() -> list[str]:
    """Return the packages that mirrorfeed needs. Empty if a notebook imports the files of a bundle."""
    try:
        lines = importlib.metadata.requires("mirrorfeed") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [found[0] for line in lines if "extra ==" not in line and (found := re.match(r"[\w.-]+", line))]


def check_settings(spark: SparkSession) -> Finding:
    """Report the settings that this session does not allow changing, and that have another value than mirrorfeed
    needs."""
    what = "settings of the Spark session"
    if refused := refused_settings(spark):
        return not_checked(what, "cannot be changed: " + ", ".join(f"{name} ({why})" for name, why in refused.items()))
    return passed(what, "all can be changed")


def check_spark_writes(spark: SparkSession, area: StagingArea) -> Iterator[Finding]:
    """Report the results of `observe` and `inputFiles` for files in the staging area."""
    folder, seen = f"{area.root}/{uuid.uuid4().hex}-probe", Observation()

    def observe() -> str:
        spark.range(_ROWS).observe(seen, F.count("*").alias("rows")).write.parquet(folder)
        counted = dict(seen.get).get("rows")
        return f"counts {counted} of {_ROWS} rows" if counted is not None else "returns no metrics"

    def input_files() -> str:
        names = spark.read.parquet(folder).inputFiles()
        return ", ".join(sorted(_shape(name, folder) for name in names)) or "returns no file"

    try:
        observed = attempt("`observe` of a write", observe)
        yield observed
        if observed.ok:
            yield attempt("`inputFiles` of written files", input_files)
    finally:
        area.remove(folder)


def _shape(uri: str, folder: str) -> str:
    """Return the address of a file with letters and digits of its ids replaced."""
    scheme, _, name = uri.partition(folder)
    return f"{scheme}<folder>{re.sub(r'[0-9a-f]{8}-[0-9a-f-]{27}', '<id>', name)}"


def check_mount(what: str, volume: str) -> Finding:
    """Report the operations that the mount of a volume refuses. mirrorfeed only reads through the mount."""
    if not os.path.isdir(volume):
        return not_checked(what, "it is not mounted here, so mirrorfeed uses the Files API")
    folder = Path(volume, f"_mirrorfeed_setup-{uuid.uuid4().hex}")

    def find_refusals() -> str:
        folder.mkdir()
        file = folder / "file"
        file.write_bytes(b"content")
        refused = [f"{name} ({why})" for name, action in _ACTIONS.items() if (why := _refusal(action, file))]
        if len({os.stat(file).st_ino for _ in range(3)}) > 1:
            refused.append("stable inode numbers")
        return f"lacks {', '.join(refused)}" if refused else "lacks nothing"

    try:
        return attempt(what, find_refusals)
    finally:
        for each in (*folder.glob("*"), folder):
            with suppress(OSError):
                each.rmdir() if each == folder else each.unlink()


def _refusal(action: Callable[[Path], object], file: Path) -> str:
    try:
        action(file)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return ""


def _fsync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def _overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"x")


def _rename(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"other")
    os.rename(other, file.with_name("renamed"))


_ACTIONS: Mapping[str, Callable[[Path], object]] = {
    "fsync": _fsync,
    "hard links": lambda file: os.link(file, file.with_name("link")),
    "appends": _append,
    "random writes": _overwrite,
    "renames": _rename,
}
