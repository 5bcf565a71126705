"""Errors of storage, of access tiers, and of JSON files that contain prices."""

from __future__ import annotations

from mirrorfeed.errors import ConfigurationError, StorageError, TransientError, problem

RUN_AGAIN = "then run the same command again."


class PathMissingError(StorageError):
    code = "MF4001"
    what = "{address} does not exist."
    fix = "Check the address, and whether another process deleted the file or folder."
    address: str


class PathExistsError(StorageError):
    code = "MF4002"
    what = "{address} already exists and was not overwritten."
    fix = "Find out which process created the file. If nobody needs the file, delete it."
    address: str


class StorageUnavailableError(TransientError):
    code = "MF4003"
    what = "Cannot {action} {address}: {reason}."
    fix = f"Check that the storage can be reached and that this identity can write to it, {RUN_AGAIN}"
    meaning = (
        "The storage did not respond, or cannot serve the request now. The request may have taken effect; the next run"
        " checks that."
    )
    action: str
    address: str
    reason: str
    retry_after: float = 0.0
    """Seconds that the service asks clients to wait. 0 if unknown."""


class LocationUnusableError(StorageError):
    code = "MF4004"
    what = "Cannot {action} {address}: {reason}."
    fix = (
        "Check that `landing_zone` in the configuration names a folder in which this process can write and rename"
        f" files, {RUN_AGAIN}"
    )
    action: str
    address: str
    reason: str


class VolumeUnusableError(StorageError):
    code = "MF4009"
    what = "Cannot {action} {address}: {reason}."
    fix = (
        "Check that the volume exists, and that this identity has READ VOLUME and WRITE VOLUME on the volume. Outside"
        " Databricks, also check the login to the workspace (DATABRICKS_HOST). Then run the same command again."
    )
    action: str
    address: str
    reason: str


@problem(StorageError, "MF4005")
def path_outside_root(*, path: str, address: str) -> None:
    """The path {path!r} is not below {address}.

    Use relative paths without empty parts, '.', '..' or backslashes.
    """


class SymbolicLinkError(LocationUnusableError):
    code = "MF4006"
    fix = "Replace the link by the file or folder itself, or use the target of the link in the configuration."
    meaning = "A path in the landing zone or in the staging area contains a symbolic link. Links are not followed."


class UnreadableFileError(StorageError):
    code = "MF4007"
    what = "Cannot read {address}: {reason}."
    fix = (
        "mirrorfeed did not write this file. Find out who wrote the file, and delete it. If the file replaced one of"
        " mirrorfeed, restore the original, or run `mirrorfeed rebuild`."
    )
    address: str
    reason: str


@problem(ConfigurationError, "MF1107")
def invalid_prices(*, path: str, reason: str) -> None:
    """{path} is not a valid file with prices: {reason}.

    Write your prices as JSON, for example {{"currency": "EUR", "standard": {{"per_gib": 0.02, "per_10k_files": 5.5}},
    "high": {{"per_gib": 0.12, "per_10k_files": 60}}, "stored": {{"hot": 0.018, "cool": 0.01, "archive": 0.001}},
    "archiving": 0.11}}. `standard` and `high` are restore prices, `stored` has prices of a GiB per month, and
    `archiving` is the price to archive 10,000 files.
    """


@problem(StorageError, "MF5601")
def no_access_tiers(*, table: str, location: str) -> None:
    """The files of {table} have no access tiers, because {location} is neither in Azure storage nor in S3.

    Choose a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or
    s3://bucket/folder.
    """


class TiersUnavailableError(TransientError):
    code = "MF5602"
    what = "Cannot {action} {place}: {reason}."
    fix = (
        "Check that the storage can be reached, and that the identity has the role Storage Blob Data Contributor in"
        " Azure, or s3:ListBucket and s3:RestoreObject in S3. Then run the same command again."
    )
    meaning = "The storage did not return or change the access tiers of files."
    action: str
    place: str
    reason: str


class FileOutsideStorageError(StorageError):
    code = "MF5603"
    what = "The access tier of {uri} is unknown, because the file is not below {root}."
    fix = "If the table is a shallow clone, restore these files with the table from which it was cloned."
    uri: str
    root: str


@problem(StorageError, "MF5604")
def boto3_missing(*, bucket: str) -> None:
    """Files in s3://{bucket}/ require the Python package boto3, but boto3 is not installed.

    Run `pip install 'mirrorfeed[s3]'`. Databricks includes boto3.
    """
