"""Errors of storage."""

from __future__ import annotations

from mirrorfeed.errors import Terminal, Transient

_RUN_AGAIN = "then run the same command again."
_COMPARE_IDS = (
    "Compare `landing_zone: onelake://<workspace id>/<mirrored database id>` with the address that Fabric shows on the"
    " page of the mirrored database"
)


class NotThere(Terminal):
    code = "MF4001"
    what = "{address} does not exist."
    fix = "Check the address, and whether another process deleted it."
    address: str


class AlreadyThere(Terminal):
    code = "MF4002"
    what = "{address} already exists and is not overwritten."
    fix = "Find out which process created it."
    address: str


class StoreUnavailable(Transient):
    code = "MF4003"
    what = "Cannot {action} {address}: {reason}."
    fix = f"Check that the location exists, is reachable and writable, {_RUN_AGAIN}"
    meaning = (
        "The storage did not respond, or cannot serve the request now. It is not known whether the request took effect;"
        " the next run checks."
    )
    retry_after: float = 0.0
    """Seconds for which the service asks to wait."""


class PlaceUnusable(Terminal):
    code = "MF4004"
    what = "Cannot {action} {address}: {reason}."
    fix = f"Check that `landing_zone` in the configuration names a folder that this process can write to, {_RUN_AGAIN}"
    reason: str


class VolumeUnusable(Terminal):
    code = "MF4009"
    what = "Cannot {action} {address}: {reason}."
    fix = (
        "Check that the volume exists, and that this identity has the privileges READ VOLUME and WRITE VOLUME on it."
        " Outside Databricks, also check the login to the workspace (DATABRICKS_HOST). Then run the same command again."
    )
    reason: str


class PathOutside(Terminal):
    code = "MF4005"
    what = "The path {path!r} is not below {address}."
    fix = "Use relative paths without empty parts, '.', '..' or backslashes."


class SymbolicLink(PlaceUnusable):
    code = "MF4006"
    fix = "Replace the link by the folder or file itself, or set its target in the configuration."
    meaning = "A path in the landing zone or in the staging area contains a symbolic link. Links are not followed."


class UnreadableFile(Terminal):
    code = "MF4007"
    what = "Cannot read {address}: {reason}."
    fix = (
        "mirrorfeed did not write this file. Find out who did, and delete it. If it replaced a file of mirrorfeed,"
        " restore that file, or run `mirrorfeed rebuild`."
    )
    reason: str


class TokenRefused(Terminal):
    code = "MF4101"
    what = "OneLake does not accept the token for {address} ({response})."
    fix = (
        "Check that `credential` names an identity of the tenant of the Fabric workspace, and that its tokens are for"
        " https://storage.azure.com. OneLake does not accept tokens for the Fabric API."
    )


class NoPermission(Terminal):
    code = "MF4102"
    what = "OneLake does not allow this identity to {action} {address} ({response})."
    fix = (
        "Give it the role Contributor in the workspace. For a service principal, a Fabric administrator must also allow"
        " service principals, and access to OneLake from apps outside Fabric, in the tenant settings."
    )


class WorkspaceMissing(Terminal):
    code = "MF4103"
    what = "OneLake has no workspace with the first id in {address}, or this identity has no access to it."
    fix = f"{_COMPARE_IDS}, and check that the identity has a role in the workspace."


class DatabaseMissing(Terminal):
    code = "MF4104"
    what = "The workspace has no item with the second id in {address}."
    fix = f"{_COMPARE_IDS}: the database may have been deleted, or the ids may be swapped."


class NotAnOpenMirror(Terminal):
    code = "MF4105"
    what = "The item has no landing zone: {address} does not exist."
    fix = (
        "Check that the second id in `landing_zone` belongs to an open mirrored database. A lakehouse, a warehouse or"
        " another kind of mirror does not accept files."
    )


class CallRefused(Terminal):
    code = "MF4106"
    what = "OneLake refuses to {action} {address} ({response})."
    fix = (
        "The same request would be refused again. Check `endpoint` in the configuration, and whether a proxy changes"
        " requests to OneLake. Otherwise install a newer mirrorfeed."
    )


class CapacityPaused(Terminal):
    code = "MF4107"
    what = "The Fabric capacity of {address} is paused ({response})."
    fix = f"Resume the capacity in the Azure portal, {_RUN_AGAIN} No data is lost."


class Throttled(StoreUnavailable):
    code = "MF4108"
    fix = (
        "Run the same command again later. If this happens often, the Fabric capacity is too small or too busy: publish"
        " fewer tables at a time, or scale it up."
    )
    meaning = "OneLake throttles requests of this capacity, and all retries of this run failed."


class StillRead(StoreUnavailable):
    code = "MF4109"
    fix = "Fabric may still be reading it. Run the same command again in a few minutes."
    meaning = "A file cannot be deleted while another process reads it."


class InvalidPrices(Terminal):
    code = "MF1107"
    what = "{path} is not a valid price file ({reason})."
    fix = (
        'Write your prices as JSON, for example {{"currency": "EUR", "standard": {{"per_gib": 0.02,'
        ' "per_10k_files": 5.5}}, "high": {{"per_gib": 0.12, "per_10k_files": 60}}, "stored": {{"hot": 0.018,'
        ' "cool": 0.01, "archive": 0.001}}, "archiving": 0.11}}. `standard` and `high` are restore prices, `stored` has'
        " prices of a GiB per month, and `archiving` is the price to archive 10,000 files."
    )


class NoTiers(Terminal):
    code = "MF5601"
    what = "The files of {table} have no access tiers, because they are neither in Azure storage nor in S3."
    fix = (
        "Choose a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or"
        " s3://bucket/folder."
    )


class TiersUnavailable(Transient):
    code = "MF5602"
    what = "Cannot {action} {place}: {reason}."
    fix = (
        "Check that the location is reachable and that the identity can read and write there. In Azure, it needs"
        " the role Storage Blob Data Contributor; in S3, s3:ListBucket and s3:RestoreObject. Then run the same command"
        " again."
    )
    meaning = "The storage did not return or change the access tiers of files."


class OtherPlace(Terminal):
    code = "MF5603"
    what = "The access tier of {uri} is unknown, because the file is not below {root}."
    fix = "If files of a table are in several containers, as in a shallow clone, restore them at the source table."


class NoBoto(Terminal):
    code = "MF5604"
    what = "Files in s3://{bucket}/ require the Python package boto3, which is not installed."
    fix = "Install it with `pip install 'mirrorfeed[s3]'`. Databricks includes it."
