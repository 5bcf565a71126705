"""Error of `mirrorfeed adopt`. A publication does not load this module."""

from __future__ import annotations

from mirrorfeed.errors import ConfigurationError

_REBUILD = "reload the table with `mirrorfeed rebuild`"


class AdoptionRefusedError(ConfigurationError):
    code = "MF3220"
    what = {
        "published": "{address} is already published by mirrorfeed, up to version {detail} of {table}.",
        "empty": "{address} has no data file, so the number of the next file is not known.",
        "gap": "{address} lacks file number {detail}, although files with lower and higher numbers exist.",
        "waiting": "{address} has {detail} data files, so Fabric has not consumed all of them.",
        "keys": "{address} has no key columns, but {table} has the keys {detail}.",
        "columns": "{address} does not have the columns of {table} in the configuration: {detail}.",
        "unreadable": "{address} cannot be read as Parquet: {detail}",
        "option": "{table} has `{detail}`, with which {address} cannot be continued.",
        "version": "{table} has no version {version}. Its newest version is {detail}.",
        "replaced": "Version {detail} of {table} replaced the table, after version {version}.",
        "mirror": "The mirror of {table} is not equal to version {version}: {detail}.",
        "lint": "{address} violates the specification of open mirroring: {detail}.",
    }
    fix = {
        "published": "Run `mirrorfeed publish`. It continues after this version. Nothing was written.",
        "empty": "Run `mirrorfeed publish` if the folder is new. Otherwise, reload the table with `mirrorfeed rebuild`."
        " Nothing was written.",
        "gap": f"Fabric waits for this file. Let the other publisher write it, or {_REBUILD}. Nothing was written.",
        "waiting": "Stop the other publisher, wait until only the last file is left, and run the command again. Nothing"
        " was written.",
        "keys": f"Remove `keys` from the configuration, or {_REBUILD}. Nothing was written.",
        "columns": "Set `columns`, `exclude_columns`, `rename` or `cast` so that the next file has the same columns and"
        f" types, or {_REBUILD}. Nothing was written.",
        "unreadable": f"Let the other publisher write a valid file as the last one, or {_REBUILD}. Nothing was"
        " written.",
        "option": f"Remove this option, or {_REBUILD}. Nothing was written.",
        "version": "Find the version with DESCRIBE HISTORY, and set `--published`. Nothing was written.",
        "replaced": f"The files contain rows of another table, so {_REBUILD}. Nothing was written.",
        "mirror": "Set `--published` to the version that the other publisher has published last. If no version is"
        f" equal, {_REBUILD}. Nothing was written.",
        "lint": f"Run `mirrorfeed lint`, correct the folder, or {_REBUILD}. Nothing was written.",
    }
    reason: str
    address: str
    table: str = ""
    version: int = 0
    detail: str = ""

    @property
    def case(self) -> str:
        return self.reason
