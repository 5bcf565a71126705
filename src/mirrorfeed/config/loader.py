"""Read `mirrorfeed.yml` into a `Config`, or report all its mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path

from yaml.nodes import MappingNode

from mirrorfeed.config import FILE
from mirrorfeed.config.connections import DEFAULT_SCHEMA
from mirrorfeed.config.errors import ConfigInvalidError, Mistake, option_invalid
from mirrorfeed.config.model import Config, Sources, Table
from mirrorfeed.config.validators import ONELAKE
from mirrorfeed.config.yaml_document import Document, Place, read_document, validate
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import Target, split_name
from mirrorfeed.runtime.credentials import ServicePrincipal, is_trusted, parse_address

EXAMPLE = files("mirrorfeed.config").joinpath("example.yml").read_text(encoding="utf-8")
"""Content of the example configuration that `mirrorfeed init` writes."""

_ONELAKE_FIELDS = ("endpoint", "fabric_endpoint", "private_link", "trusted_hosts", "ca_bundle", "credential", "fabric")


def load(
    path: str | Path = FILE,
    *,
    landing_zone: str | None = None,
    ledger: str | None = None,
    staging_path: str | None = None,
    secret_scope: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration in a file. Patterns are not expanded.

    `landing_zone`, `ledger` and `staging_path` override the values in the file. `secret_scope` is the Databricks secret
    scope of all secrets that have a `key` but no `scope` in the file. `variables` replace references such as
    `${catalog}` in the file.

    Raises `config_missing`, `config_unreadable`, `ConfigInvalidError` with all mistakes in the file, `option_invalid`
    for an invalid override, and `several_landing_zones` if entries have different landing zones and `landing_zone` is
    None.
    """
    file = str(path)
    document = read_document(file, partial(_set_variables, variables or {}))
    options = {"landing_zone": landing_zone, "ledger": ledger, "staging_path": staging_path}
    overrides = {name: value for name, value in options.items() if value is not None}
    faults: dict[Place, str] = {}
    entries = _validate_entries(document, faults)
    data = {**document.data, **overrides}
    if isinstance(data.get("tables"), list):
        data["tables"] = tuple(entries.values())
        if not document.tables:
            faults["tables",] = "is empty: name at least one table"
    config = validate(Config, data, file, faults, secret_scope=secret_scope, variables=document.variables)
    for name in overrides:
        if reason := faults.get((name,)):
            raise option_invalid(option=name.replace("_", "-"), reason=reason)
    mistakes = [document.mistake(place, reason) for place, reason in faults.items() if place not in document.unusable]
    mistakes += document.mistakes
    mistakes += [mistake for place, mistake in document.unset.items() if place[0] not in overrides]
    mistakes += _find_shared_targets(document)
    if config is not None:
        entries = dict(zip(entries, config.entries, strict=True))
        conflicts = _find_conflicts(document, config, entries, landing_zone is not None)
        mistakes += [document.mistake(place, reason) for place, reason in conflicts]
    if mistakes or config is None:
        raise ConfigInvalidError(path=file, mistakes=tuple(sorted(set(mistakes))))
    if not any(entry.landing_zone for entry in config.entries):
        return config
    from mirrorfeed.config.several_zones import select_landing_zone  # imported late: few configurations have several

    return select_landing_zone(document, config, landing_zone is not None)


def _set_variables(variables: Mapping[str, str], text: str, root: MappingNode, document: Document) -> None:
    if variables or "${" in text:
        from mirrorfeed.config.variables import replace_references  # imported late: few configurations have variables

        replace_references(root, document, variables)


def _validate_entries(document: Document, faults: dict[Place, str]) -> dict[int, Table | Sources]:
    """Return the valid entries of `tables`, with their positions as keys. Add messages about the others to `faults`."""
    entries: dict[int, Table | Sources] = {}
    for i in range(len(document.tables)):
        model: type[Table | Sources] = Sources if _is_pattern(document.tables[i]) else Table
        if entry := validate(model, document.entry(i), document.path, faults, partial(document.place, i)):
            entries[i] = entry
    return entries


def _is_pattern(entry: object) -> bool:
    return isinstance(entry, dict) and "sources" in entry


Conflict = tuple[Place, str]
"""Path of a field in the file, and the reason why its value conflicts with the values of other fields."""


def _find_conflicts(
    document: Document, config: Config, entries: Mapping[int, Table | Sources], is_overridden: bool
) -> Iterator[Conflict]:
    yield from _find_unused_options(document, config, entries, is_overridden)
    yield from _find_untrusted_hosts(config)
    yield from _find_overlapping_folders(config, entries)
    yield from _find_misplaced_histories(document, config, entries)
    for i, entry in entries.items():
        place = document.place(i, "changes")
        if entry.changes != "compare":
            continue
        if config.ledger is None:
            yield place, "compare stores row hashes next to the ledger: set `ledger`"
        if entry.selection:
            yield place, "compare publishes the whole source: select columns and rows in a view"
        if entry.history:
            yield place, "compare reads no changes, so there is no history of them: set `history: false`"


def _find_unused_options(
    document: Document, config: Config, entries: Mapping[int, Table | Sources], is_overridden: bool
) -> Iterator[Conflict]:
    """Yield each option that has no effect, and why. `is_overridden`: True if `load` got a landing zone as argument."""
    if config.onelake is None and not is_overridden:
        for name in _ONELAKE_FIELDS:
            if name in config.model_fields_set:
                yield (name,), "is only for a landing zone in OneLake (onelake://…)"
    lacks_schema = [
        entry.target.schema is None if isinstance(entry, Table) else len(split_name(entry.target)) == 1
        for entry in entries.values()
    ]
    if config.fabric.default_schema not in (None, DEFAULT_SCHEMA) and any(lacks_schema):
        yield (
            ("fabric", "default_schema"),
            f"applies to targets without a schema, which mirrorfeed expects in {DEFAULT_SCHEMA}: add a schema to each"
            " target",
        )
    unused: list[Place] = [("tables", i, "delimited") for i, entry in entries.items() if entry.format == "parquet"]
    if "format" not in config.model_fields_set:
        unused.append(("delimited",))
    for place in unused:
        if place in document.lines:
            yield place, "is only for format: delimited"


def _find_untrusted_hosts(config: Config) -> Iterator[Conflict]:
    """Yield the fields with addresses that would receive tokens, but are neither Microsoft's nor in `trusted_hosts`."""
    authority = config.credential.authority if isinstance(config.credential, ServicePrincipal) else None
    addresses: dict[Place, str | None] = {
        ("endpoint",): config.endpoint,
        ("fabric_endpoint",): config.fabric_endpoint,
        ("credential", "service_principal", "authority"): authority,
    }
    for place, address in addresses.items():
        if address and not is_trusted(parse_address(address)[1], config.trusted_hosts):
            yield place, "receives tokens, but is not a host of Microsoft: if you trust it, list it in trusted_hosts"


_IN_ZONE = "is in the landing zone: name a folder elsewhere"


def _find_overlapping_folders(config: Config, entries: Mapping[int, Table | Sources]) -> Iterator[Conflict]:
    """Yield a conflict for each folder that is inside another folder of the configuration and must not be there.

    A landing zone or the staging folder must not be inside the folder of a source. A source or the staging folder must
    not be inside the landing zone.
    """
    if config.staging_path and config.is_in_landing_zone(config.staging_path):
        yield ("staging_path",), _IN_ZONE
    for i, table in entries.items():
        if not isinstance(table, Table) or table.source.path is None:
            continue
        folders: dict[Place, str | None] = {
            ("landing_zone",): config.landing_zone,
            ("staging_path",): config.staging_path,
            ("tables", i, "landing_zone"): table.landing_zone,
        }
        inside = [
            place
            for place, path in folders.items()
            if path and not path.startswith(ONELAKE) and Path(path).is_relative_to(table.source.path)
        ]
        for place in inside:
            reason = f"is in the folder of '{table.source}', where VACUUM would delete the files"
            yield place, f"{reason}: name a folder elsewhere"
        if not inside and config.is_in_landing_zone(table.source.path):
            yield ("tables", i, "source"), "is in the landing zone, which is only for published files"


def _find_misplaced_histories(
    document: Document, config: Config, entries: Mapping[int, Table | Sources]
) -> Iterator[Conflict]:
    """Yield the `history` fields that name another table of the configuration, or a folder in the landing zone."""
    tables = [entry for entry in entries.values() if isinstance(entry, Table)]
    purposes = {table.source.fold(): "is the source of a table" for table in tables}
    if config.ledger is not None:
        purposes[config.ledger.fold()] = "is the ledger"
    for i, entry in entries.items():
        if entry.history is None:
            continue
        place, location = document.place(i, "history"), entry.history.table
        if isinstance(entry, Table):
            if purpose := purposes.get(location.fold()):
                yield place, f"'{location}' {purpose}: name another table for the history of {entry.target}"
            purposes[location.fold()] = "is also the history of another table"
        if location.path is not None and config.is_in_landing_zone(location.path):
            yield place, _IN_ZONE


def _find_shared_targets(document: Document) -> Iterator[Mistake]:
    """Yield a mistake for each table that has the same target as an earlier table, regardless of case."""
    first: dict[tuple[str, str], tuple[int, Target]] = {}
    for i, table in enumerate(document.tables):
        place: Place = ("tables", i, "target")
        if _is_pattern(table):
            continue  # the targets are known only after the expansion
        try:
            target = Target.parse(table["target"])
        except (TargetNameError, TypeError, KeyError):
            continue  # reported separately
        if target.fold() not in first:
            first[target.fold()] = document.line(place), target
            continue
        line, other = first[target.fold()]
        differs = "" if other == target else f" as '{other}', and names are case-insensitive"
        yield document.mistake(place, f"'{target}' is also the target of the table on line {line}{differs}")
