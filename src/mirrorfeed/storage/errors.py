"""Errors of storage, of access tiers, and of JSON files that contain prices."""

from __future__ import annotations

from mirrorfeed.errors import Terminal, Transient

RUN_AGAIN = "then run the same command again."


class NotThere(Terminal):
    code = "MF4001"
    what = "{address} does not exist."
    fix = "Check the address, and whether another process deleted the file or folder."


class AlreadyThere(Terminal):
    code = "MF4002"
    what = "{address} already exists and was not overwritten."
    fix = "Find out which process created the file. If nobody needs the file, delete it."
    address: str


class StoreUnavailable(Transient):
    code = "MF4003"
    what = "Cannot {action} {address}: {reason}."
    fix = f"Check that the storage can be reached and that this identity can write to it, {RUN_AGAIN}"
    meaning = (
        "The storage did not respond, or cannot serve the request now. The request may have taken effect; the next run"
        " checks that."
    )
    retry_after: float = 0.0
    """Seconds that the service asks clients to wait. 0 if unknown."""


class PlaceUnusable(Terminal):
    code = "MF4004"
    what = "Cannot {action} {address}: {reason}."
    fix = (
        "Check that `landing_zone` in the configuration names a folder in which this process can write and rename"
        f" files, {RUN_AGAIN}"
    )
    reason: str


class VolumeUnusable(Terminal):
    code = "MF4009"
    what = "Cannot {action} {address}: {reason}."
    fix = (
        "Check that the volume exists, and that this identity has READ VOLUME and WRITE VOLUME on the volume. Outside"
        " Databricks, also check the login to the workspace (DATABRICKS_HOST). Then run the same command again."
    )
    reason: str


class PathOutside(Terminal):
    code = "MF4005"
    what = "The path {path!r} is not below {address}."
    fix = "Use relative paths without empty parts, '.', '..' or backslashes."


class SymbolicLink(PlaceUnusable):
    code = "MF4006"
    fix = "Replace the link by the file or folder itself, or use the target of the link in the configuration."
    meaning = "A path in the landing zone or in the staging area contains a symbolic link. Links are not followed."


class UnreadableFile(Terminal):
    code = "MF4007"
    what = "Cannot read {address}: {reason}."
    fix = (
        "mirrorfeed did not write this file. Find out who wrote the file, and delete it. If the file replaced one of"
        " mirrorfeed, restore the original, or run `mirrorfeed rebuild`."
    )
    reason: str


class InvalidPrices(Terminal):
    code = "MF1107"
    what = "{path} is not a valid file with prices: {reason}."
    fix = (
        'Write your prices as JSON, for example {{"currency": "EUR", "standard": {{"per_gib": 0.02,'
        ' "per_10k_files": 5.5}}, "high": {{"per_gib": 0.12, "per_10k_files": 60}}, "stored": {{"hot": 0.018,'
        ' "cool": 0.01, "archive": 0.001}}, "archiving": 0.11}}. `standard` and `high` are restore prices, `stored` has'
        " prices of a GiB per month, and `archiving` is the price to archive 10,000 files."
    )


class NoTiers(Terminal):
    code = "MF5601"
    what = "The files of {table} have no access tiers, because {location} is neither in Azure storage nor in S3."
    fix = (
        "Choose a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or"
        " s3://bucket/folder."
    )


class TiersUnavailable(Transient):
    code = "MF5602"
    what = "Cannot {action} {place}: {reason}."
    fix = (
        "Check that the storage can be reached, and that the identity has the role Storage Blob Data Contributor in"
        " Azure, or s3:ListBucket and s3:RestoreObject in S3. Then run the same command again."
    )
    meaning = "The storage did not return or change the access tiers of files."


class OtherPlace(Terminal):
    code = "MF5603"
    what = "The access tier of {uri} is unknown, because the file is not below {root}."
    fix = "If the table is a shallow clone, restore these files with the table from which it was cloned."


class NoBoto(Terminal):
    code = "MF5604"
    what = "Files in s3://{bucket}/ require the Python package boto3, but boto3 is not installed."
    fix = "Run `pip install 'mirrorfeed[s3]'`. Databricks includes boto3."
