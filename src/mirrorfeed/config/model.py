"""The models `Config`, `Table` and `Sources`, and functions for shards, landing zones and tables of row hashes."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from mirrorfeed.config import FILE, validators
from mirrorfeed.config.connections import Alerts, CredentialField, FabricOptions
from mirrorfeed.config.errors import UnknownTableError, database_not_named
from mirrorfeed.config.options import (
    CommonHistory,
    EntryOptions,
    Options,
    Partner,
    Pause,
    TableHistory,
    history_below,
)
from mirrorfeed.config.validators import ONELAKE, resolve_source
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.schema import Column
from mirrorfeed.runtime.credentials import Default
from mirrorfeed.source.errors import SourceNameError
from mirrorfeed.source.identifier import Pattern, Source
from mirrorfeed.storage import Store, open_folder
from mirrorfeed.storage.prices import Prices

if TYPE_CHECKING:
    from mirrorfeed.config.variables import Variable
    from mirrorfeed.landing.selection import TagRules


class Table(EntryOptions):
    source: Annotated[Source, validators.TextValidator(validators.parse_source)]
    target: Annotated[Target, validators.TextValidator(validators.parse_target)]
    history: TableHistory = None
    paused: Pause | None = None
    """Configured pause, which may be over. None means no pause."""

    @property
    def target_keys(self) -> tuple[str, ...]:
        """Key columns in the target. Empty if there is no key, or before keys are read from Unity Catalog."""
        selection = self.selection
        return tuple(selection.name_of(key) if selection else key for key in self.keys or ())

    def with_transformations(self, transform: Mapping[str, str], tags: TagRules) -> Self:
        """Return a copy with these transformations, after the tags of the columns were read."""
        table = self.model_copy(update={"transform": dict(transform)})
        table._tags = tags
        return table

    def metadata(self, columns: Sequence[Column]) -> dict[str, Any]:
        """Return the content of `_metadata.json`. `columns` are the columns from the source."""
        return self.output.metadata(self.delivery.keys(self.target_keys), (*columns, *self.delivery.columns))

    def pause_at(self, now: datetime) -> Pause | None:
        return self.paused if self.paused and now < self.paused.until else None


class Sources(EntryOptions):
    """Entry with a pattern for sources. `expand_patterns` adds a `Table` to the configuration for each match."""

    sources: Annotated[Pattern, validators.TextValidator(validators.parse_pattern)]
    exclude: Annotated[tuple[tuple[str, ...], ...], validators.ListValidator(validators.parse_exclude)] = ()
    tags: Annotated[dict[str, str] | None, validators.PairsValidator(validators.parse_tags)] = None
    """Tags in Unity Catalog that a table must have. None means that tags are not read."""
    target: Annotated[str, AfterValidator(validators.check_target_template)] = "{schema}.{table}"
    history: CommonHistory = None
    """Schema or folder for the histories of the matching tables. None means no histories."""

    @model_validator(mode="after")
    def _check_names_in_target(self) -> Self:
        if missing := validators.find_placeholders(self.target) - set(self.sources.part_names):
            raise ValueError(f"target: {self.sources} has no {', '.join(sorted(missing))} to fill in")
        return self

    @model_validator(mode="after")
    def _check_tags(self) -> Self:
        if self.tags and not Source(self.sources.parts).is_in_unity_catalog:
            raise ValueError("tags: requires a pattern for Unity Catalog with three parts, such as main.*.*")
        return self


class ArchiveOptions(validators.ConfigModel):
    prices: Prices


class Config(Options):
    """Content of a configuration file. An option at the top level is the default for all entries of `tables`."""

    defaults: Annotated[None, validators.DEFAULTS] = Field(default=None, alias="variables")
    """Only checked: the property `variables` has the variables in use and their texts."""
    landing_zone: Annotated[str, AfterValidator(validators.parse_landing_zone)]
    endpoint: Annotated[str, AfterValidator(validators.parse_endpoint)] | None = None
    """Endpoint of OneLake. None means the public endpoint or, with `private_link`, the endpoint of the workspace."""
    fabric_endpoint: Annotated[str, AfterValidator(validators.parse_endpoint)] | None = None
    """Endpoint of Fabric's REST API. None means the public one or, with `private_link`, that of the workspace."""
    private_link: bool = False
    """True if the workspace has its own private link. Then the names of the endpoints contain the workspace id."""
    trusted_hosts: Annotated[tuple[str, ...], validators.ListValidator(validators.parse_hosts)] = ()
    """Hosts other than Microsoft's that may receive tokens."""
    ca_bundle: Annotated[str, AfterValidator(validators.resolve_folder)] | None = None
    """File with the CA certificates to trust. None means the certificates of the system."""
    credential: CredentialField = Default()
    upload_from: Literal["driver", "executors"] = "driver"
    """Process that uploads the files that Spark writes: the driver or Spark's executors."""
    staging_path: validators.StagingPath | None = None
    """Folder where Spark writes files if it cannot write into the landing zone. None means a local temporary folder."""
    ledger: Annotated[Source | None, validators.TextValidator(validators.parse_source)] = None
    """Delta table that records every publication. None means that nothing is recorded."""
    ledger_retention_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """Number of days after which rows of the ledger are deleted. None means never."""
    shared_landing_zone: bool = False
    """True if other configurations publish to the same landing zone. Then a table without an entry is reported as
    orphaned only if its source has an entry with another target."""
    max_parallel_tables: Annotated[int, Field(ge=1, le=256)] | None = None
    """Maximum number of tables published at the same time. None means a number that depends on the driver's cores."""
    partner: Partner | None = None
    """Description of the publisher in `_partnerEvents.json`. None means that the file is not written."""
    history: CommonHistory = None
    """Schema or folder for the histories of all tables that do not set `history`. None means no histories."""
    lineage: Literal["openlineage"] | None = None
    """System that receives an event for each publication and each failure. None means that no events are sent."""
    telemetry: Literal["opentelemetry"] | None = None
    """System that receives metrics of each result and of each check of `check-alerts`, and a trace of each run.

    None means that nothing is sent."""
    archive: ArchiveOptions | None = None
    """Settings for tables with archived files: prices. None means no prices."""
    alerts: Alerts = Alerts()
    """Limits and channels of `mirrorfeed check-alerts`."""
    fabric: FabricOptions = FabricOptions()
    """Settings of the mirrored database."""
    entries: tuple[Table | Sources, ...] = Field(alias="tables")
    _path: str = PrivateAttr(FILE)
    _variables: tuple[Variable, ...] = PrivateAttr(())

    @field_validator("entries", mode="after")
    @classmethod
    def _share_history(cls, entries: tuple[Table | Sources, ...], info: ValidationInfo) -> tuple[Table | Sources, ...]:
        """Return the entries, and fill their missing `history` from the top-level `history`, a schema or folder. A
        pattern gets the schema or folder itself. A table gets its own location in the schema or folder."""
        common = info.data.get("history")

        def with_history(entry: Table | Sources) -> Table | Sources:
            if common is None or "history" in entry.model_fields_set:
                return entry
            location = history_below(common, entry.target) if isinstance(entry, Table) else common
            return entry.model_copy(update={"history": location})

        return tuple(map(with_history, entries))

    def model_post_init(self, context: Any, /) -> None:
        if context:
            self._path = context["file"]
            self._variables = context.get("variables", ())

    @property
    def path(self) -> str:
        return self._path

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Variables to which values in the file refer."""
        return self._variables

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Table))

    @property
    def patterns(self) -> tuple[Sources, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Sources))

    @property
    def onelake(self) -> tuple[str, str | None] | None:
        """Workspace id and database id (None if not set) of a landing zone in OneLake. None for a folder."""
        if not self.landing_zone.startswith(ONELAKE):
            return None
        workspace, _, database = self.landing_zone.removeprefix(ONELAKE).partition("/")
        return workspace, database or None

    @property
    def files_endpoint(self) -> str | None:
        """OneLake endpoint in use. None means the public one."""
        return self.endpoint or self._own_endpoint("dfs")

    @property
    def api_endpoint(self) -> str | None:
        """Fabric REST API endpoint in use. None means the public one."""
        return self.fabric_endpoint or self._own_endpoint("w.api")

    def is_in_landing_zone(self, path: str) -> bool:
        """Return whether a path is in the folder of the landing zone. Always False if this folder is in OneLake."""
        return self.onelake is None and PurePath(path).is_relative_to(self.landing_zone)

    def _own_endpoint(self, service: str) -> str | None:
        if not self.private_link or self.onelake is None:
            return None
        name = self.onelake[0].replace("-", "").lower()
        return f"https://{name}.z{name[:2]}.{service}.fabric.microsoft.com"

    def select(self, names: Sequence[str] = ()) -> tuple[Table, ...]:
        """Return the tables whose target or source is in `names`, in the order of the file. Without names, return all.

        The name `shard:2/8` selects the second of eight shards, which may be empty. A table's shard depends only on its
        target, so adding or removing tables does not move the others. Raises `UnknownTableError` if a name is neither a
        shard nor a target or source.
        """
        matches = {name: self._tables_of(name) for name in names}
        if unknown := tuple(name for name, tables in matches.items() if not tables and parse_shard(name) is None):
            raise UnknownTableError(
                names=unknown, known=tuple(str(table.target) for table in self.tables), path=self.path
            )
        targets = {table.target for tables in matches.values() for table in tables}
        return tuple(table for table in self.tables if not names or table.target in targets)

    def source_of(self, table: str) -> Source:
        """Return the source of the configured table `table`, or else the source with this name or path."""
        try:
            return self.select([table])[0].source
        except UnknownTableError:
            return Source.parse_argument(table)

    def _tables_of(self, name: str) -> list[Table]:
        if shard := parse_shard(name):
            number, count = shard
            return [table for table in self.tables if shard_of(table.target, count) == number]
        try:
            target = Target.parse(name).fold()
        except TargetNameError:
            target = None
        if tables := [table for table in self.tables if table.target.fold() == target]:
            return tables
        try:
            source = resolve_source(Source.parse(name), self.path).fold()
        except SourceNameError:
            return []
        return [table for table in self.tables if table.source.fold() == source]


_SHARD = re.compile(r"shard:([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


def parse_shard(name: str) -> tuple[int, int] | None:
    """Return a shard's number and how many shards there are: (2, 8) for `shard:2/8`. None if the name is invalid."""
    match = _SHARD.fullmatch(name)
    return (int(match[1]), int(match[2])) if match and int(match[1]) <= int(match[2]) else None


def shard_of(target: Target, count: int) -> int:
    """Return the number of the shard that contains a table, from 1 to `count`."""
    return zlib.crc32(".".join(target.fold()).encode()) % count + 1


_HASHES_PREFIX = "hashes_"


def hashes_of(ledger: Source, target: Target) -> Source:
    """Return the location of the table with the row hashes of a target: in the schema or folder of the ledger."""
    digest = hashlib.sha256("\0".join(target.fold()).encode()).hexdigest()[:8]
    words = re.sub(r"[^a-z0-9]+", "_", str(target).lower()).strip("_")
    return _next_to(ledger, f"{_HASHES_PREFIX}{words}_{digest}")


def may_be_hashes(ledger: Source, source: Source) -> bool:
    """Return whether a source looks like a table of row hashes, by its name and location. Does not read the table."""
    name = source.parts[-1] if source.path is None else source.path.rstrip("/").rpartition("/")[2]
    return name.startswith(_HASHES_PREFIX) and source.fold() == _next_to(ledger, name).fold()


def _next_to(ledger: Source, name: str) -> Source:
    if ledger.path is None:
        return Source((*ledger.parts[:-1], name))
    parent, slash, _ = ledger.path.rstrip("/").rpartition("/")
    return Source(path=f"{parent}{slash}{name}")


def zone_of(config: Config, root_folder: str = "Files/LandingZone") -> Store:
    """Return the store of the landing zone. In OneLake, `root_folder` selects another folder of the mirrored database.

    Raises `database_not_named` if the address in OneLake has no id of a database.
    """
    if config.onelake is None:
        return open_folder(config.landing_zone)
    workspace, database = config.onelake
    if database is None:
        raise database_not_named(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT, OneLakeStore  # takes a second to import, and folders never need it

    endpoint = config.files_endpoint or ENDPOINT
    return OneLakeStore(workspace, database, config.credential, endpoint, config.ca_bundle, root_folder=root_folder)
