"""The user's file read into a configuration: all of it is right, or nothing is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from mirrorfeed import FILE
from mirrorfeed.config import values
from mirrorfeed.config.alerts import Alerts
from mirrorfeed.config.destination import DEFAULT_SCHEMA
from mirrorfeed.config.history import KeptIn, below
from mirrorfeed.config.model import Config, Options, Sources, Table, Top
from mirrorfeed.config.output import contradictions
from mirrorfeed.config.selection import misfits
from mirrorfeed.config.values import ONELAKE, absolute, located
from mirrorfeed.config.yaml_document import Document, Mistake, Place, check, read
from mirrorfeed.credentials import ServicePrincipal
from mirrorfeed.errors import Terminal
from mirrorfeed.landing.names import BadTarget, Target, split_name
from mirrorfeed.runtime.addresses import HttpsAddress

EXAMPLE = files("mirrorfeed.config").joinpath("example.yml").read_text(encoding="utf-8")
"""A commented file to start from."""

_ONELAKE_FIELDS = ("endpoint", "fabric_endpoint", "trusted_hosts", "ca_file", "credential", "fabric")


def load(
    path: str | Path = FILE,
    *,
    landing_zone: str | None = None,
    ledger: str | None = None,
    handover: str | None = None,
) -> Config:
    """The file as values; or `ConfigMissing`, `ConfigUnreadable`, or `ConfigInvalid` with every mistake in it.

    A landing zone, a ledger and a handover that are given here take the place of the file's, so that one file does for
    several deployments; or `OptionInvalid`.
    """
    shown = str(path)
    document = read(shown)
    options = {"landing_zone": landing_zone, "ledger": ledger, "handover": handover}
    given = {name: value for name, value in options.items() if value is not None}
    faults: dict[Place, str] = {}
    top = check(Top, {**document.data, **given}, (), faults)
    for name in given:
        if reason := faults.get((name,)):
            raise OptionInvalid(name, reason)
    entries = [_entry(entry, ("tables", i), faults) for i, entry in enumerate(document.tables)]
    tables = [entry if isinstance(entry, Table) else None for entry in entries]
    patterns = [entry if isinstance(entry, Sources) else None for entry in entries]
    mistakes = [document.mistake(place, words) for place, words in faults.items() if place not in document.unusable]
    mistakes += document.mistakes
    mistakes += _shared_targets(document)
    if top is not None:
        mistakes += dict.fromkeys(_contradictions(document, top, entries))
    if top is not None and landing_zone is None and not top.landing_zone.startswith(ONELAKE):
        words = "is for a landing zone in OneLake alone (onelake://…)"
        mistakes += [document.mistake((name,), words) for name in _ONELAKE_FIELDS if name in top.model_fields_set]
    if top is not None and top.fabric.default_schema not in (None, DEFAULT_SCHEMA) and any(map(_lacks_schema, entries)):
        words = f"is for targets without a schema, which mirrorfeed looks for in {DEFAULT_SCHEMA}: give each a schema"
        mistakes.append(document.mistake(("fabric", "default_schema"), words))
    if top is not None and _in_landing_zone(top, shown):
        mistakes.append(document.mistake(("handover",), "is in the landing zone: name a folder elsewhere"))
    if top is not None:
        mistakes += _untrusted_hosts(document, top)
        mistakes += _within_each_other(document, top, tables, shown)
        mistakes += _misplaced_histories(document, top, tables, shown)
        mistakes += dict.fromkeys(_misplaced_places(document, top, patterns, shown))
    if mistakes or top is None:
        raise ConfigInvalid(shown, tuple(sorted(set(mistakes))))
    zone, elsewhere = _zones(document, top, entries, landing_zone is not None, shown)
    resolved = [_resolved(entry, top, shown) for entry in entries if entry is not None]
    placed = [each.model_copy(update={"landing_zone": at}) for each, at in zip(resolved, elsewhere, strict=True)]
    ca_file = None if top.ca_file is None else absolute(top.ca_file, shown)
    told = None if top.ledger is None else located(top.ledger, shown)
    between = None if top.handover is None else absolute(top.handover, shown)
    return Config(
        zone,
        tuple(each for each in placed if isinstance(each, Table)),
        shown,
        top.endpoint,
        ca_file,
        top.credential,
        top.fabric_endpoint,
        told,
        top.partner,
        top.send,
        between,
        top.archive,
        _remembering(top.alerts, shown),
        tuple(each for each in placed if isinstance(each, Sources)),
        top.fabric,
        top.at_once,
    )


def _zones(
    document: Document, top: Top, entries: Sequence[Table | Sources | None], given: bool, file: str
) -> tuple[str, list[str | None]]:
    """The landing zone that is worked with, and for each entry the other one into which it goes, or None."""
    own = [entry.landing_zone for entry in entries if entry is not None]
    if not any(own):
        return _whole(top.landing_zone, file), [None] * len(own)
    try:
        home = values.landing_zone(values.text(document.data.get("landing_zone", top.landing_zone)))
    except ValueError as error:  # what is given takes its place, but not for tables that have no place of their own
        raise ConfigInvalid(file, (document.mistake(("landing_zone",), str(error)),)) from None
    places = [_whole(each or home, file) for each in own]
    zones = tuple(dict.fromkeys(places))
    zone = _whole(top.landing_zone, file) if given else places[0]
    if len(zones) > 1 and not given:
        raise SeveralLandingZones(file, zones)
    if zone not in zones:
        raise OptionInvalid("landing_zone", f"{zone!r} is none of those over which {file} spreads: {', '.join(zones)}")
    return zone, [None if place == zone else place for place in places]


def _whole(zone: str, file: str) -> str:
    return zone if zone.startswith(ONELAKE) else absolute(zone, file)


def _entry(entry: Any, place: Place, faults: dict[Place, str]) -> Table | Sources | None:
    return check(Sources, entry, place, faults) if _is_pattern(entry) else check(Table, entry, place, faults)


def _lacks_schema(entry: Table | Sources | None) -> bool:
    if isinstance(entry, Table):
        return entry.target.schema is None
    return entry is not None and len(split_name(entry.target)) == 1


def _is_pattern(entry: object) -> bool:
    return isinstance(entry, dict) and "sources" in entry


def _remembering(alerts: Alerts, file: str) -> Alerts:
    return alerts if alerts.state is None else alerts.model_copy(update={"state": absolute(alerts.state, file)})


def _in_landing_zone(top: Top, file: str) -> bool:
    return top.handover is not None and _is_in_zone(absolute(top.handover, file), top, file)


def _untrusted_hosts(document: Document, top: Top) -> Iterable[Mistake]:
    """Addresses that would get tokens, although no host of Microsoft is there and none that the user lists."""
    authority = top.credential.authority if isinstance(top.credential, ServicePrincipal) else None
    addresses = {
        "endpoint": ("", top.endpoint),
        "fabric_endpoint": ("", top.fabric_endpoint),
        "credential": ("service_principal: authority ", authority),
    }
    for name, (prefix, address) in addresses.items():
        if address and not HttpsAddress.parse(address).is_trusted(top.trusted_hosts):
            words = "gets tokens, and is not a host of Microsoft: if you trust it, list it in trusted_hosts"
            yield document.mistake((name,), f"{prefix}{words}")


def _within_each_other(document: Document, top: Top, tables: Sequence[Table | None], file: str) -> Iterable[Mistake]:
    """What would be written into the folder of a table, and tables in the landing zone."""
    for i, table in enumerate(tables):
        folder = located(table.source, file).path if table else None
        if table is None or folder is None:
            continue
        written: dict[Place, str | None] = {
            ("landing_zone",): top.landing_zone,
            ("handover",): top.handover,
            ("tables", i, "landing_zone"): table.landing_zone,
        }
        inside = [
            place
            for place, path in written.items()
            if path and not path.startswith(ONELAKE) and Path(absolute(path, file)).is_relative_to(folder)
        ]
        for place in inside:
            words = f"is in the folder of '{table.source}', where VACUUM removes what is not of the table"
            yield document.mistake(place, f"{words}: name a folder elsewhere")
        if not inside and _is_in_zone(folder, top, file):
            yield document.mistake(
                ("tables", i, "source"), "is in the landing zone, which is for what is published alone"
            )


def _resolved(entry: Table | Sources, top: Top, file: str) -> Table | Sources:
    """With the options that it takes from the top level, and its path made absolute."""
    if isinstance(entry, Table):
        own: dict[str, Any] = {"source": located(entry.source, file), "history": _history(entry, top, file)}
    else:
        own = {"sources": located(entry.sources, file), "history": _place_of_histories(entry, top, file)}
    return entry.model_copy(update={**_inherited(entry, top), **own})


def _place_of_histories(entry: Sources, top: Top, file: str) -> KeptIn | None:
    found = top.history if entry.history is None else entry.history
    return replace(found, table=located(found.table, file)) if isinstance(found, KeptIn) else None


def _misplaced_places(document: Document, top: Top, patterns: Sequence[Sources | None], file: str) -> Iterable[Mistake]:
    """Of the histories of those that a pattern stands for."""
    for i, entry in enumerate(patterns):
        kept = _place_of_histories(entry, top, file) if entry else None
        if entry and kept and kept.table.path is not None and _is_in_zone(kept.table.path, top, file):
            place: Place = ("tables", i, "history") if entry.history is not None else ("history",)
            yield document.mistake(place, "is in the landing zone: name a folder elsewhere")


def _is_in_zone(path: str, top: Top, file: str) -> bool:
    return not top.landing_zone.startswith(ONELAKE) and Path(path).is_relative_to(absolute(top.landing_zone, file))


def _history(table: Table, top: Top, file: str) -> KeptIn | None:
    if table.history is None and top.history is not None:
        found = below(top.history, table.target)
    elif isinstance(table.history, KeptIn):
        found = table.history
    else:
        return None
    return replace(found, table=located(found.table, file))


def _misplaced_histories(document: Document, top: Top, tables: Sequence[Table | None], file: str) -> Iterable[Mistake]:
    """Those that would be written over something else, or into what the service reads."""
    taken = {located(table.source, file).fold(): "is the source of a table" for table in tables if table}
    if top.ledger is not None:
        taken[located(top.ledger, file).fold()] = "is the ledger"
    for i, table in enumerate(tables):
        kept = _history(table, top, file) if table else None
        if table is None or kept is None:
            continue
        place: Place = ("tables", i, "history") if table.history is not None else ("history",)
        if words := taken.get(kept.table.fold()):
            yield document.mistake(
                place, f"'{kept.table}' {words}: name another table for the history of {table.target}"
            )
        taken[kept.table.fold()] = "is the history of another table too"
        if kept.table.path is not None and _is_in_zone(kept.table.path, top, file):
            yield document.mistake(place, "is in the landing zone: name a folder elsewhere")


def _inherited(table: Table | Sources, top: Top) -> dict[str, Any]:
    names = (Options.model_fields.keys() & top.model_fields_set) - table.model_fields_set
    return {name: getattr(top, name) for name in names}


def _contradictions(document: Document, top: Top, tables: Sequence[Table | Sources | None]) -> Iterable[Mistake]:
    """Each where it is said: at the table, or once at the top."""
    for i, table in enumerate(tables):
        if table is None:
            continue
        whole = table.model_copy(update=_inherited(table, top))
        for place, words in contradictions(whole, whole.changes, whole.markers, whole.keys):
            own = place[0] in table.model_fields_set or place[0] not in top.model_fields_set
            yield document.mistake(("tables", i, *place) if own else place, words)
        for place, words in misfits(table, table.keys):
            yield document.mistake(("tables", i, *place), words)
        if whole.changes == "compare":
            own = "changes" in table.model_fields_set
            yield from _comparing(document, top, table, ("tables", i, "changes") if own else ("changes",))
        if whole.format == "parquet" and "delimited" in table.model_fields_set:
            yield document.mistake(("tables", i, "delimited"), "is for format: delimited alone")
    if "delimited" in top.model_fields_set and "format" not in top.model_fields_set:
        yield document.mistake(("delimited",), "is for format: delimited alone")


def _comparing(document: Document, top: Top, table: Table | Sources, place: Place) -> Iterable[Mistake]:
    """What a source that is compared needs, and what it cannot have."""
    if top.ledger is None:
        yield document.mistake(place, "compare keeps hashes beside the ledger: set `ledger`")
    if table.selection:
        yield document.mistake(place, "compare publishes all of a source: select columns and rows in a view")
    if isinstance(table.history, KeptIn) or (table.history is None and top.history is not None):
        yield document.mistake(
            place, "compare reads no changes, so no history of them can be kept: set `history: false`"
        )


def _shared_targets(document: Document) -> Iterable[Mistake]:
    first: dict[tuple[str, str], tuple[int, Target]] = {}
    for i, table in enumerate(document.tables):
        place: Place = ("tables", i, "target")
        if _is_pattern(table):
            continue  # its targets are known once it is expanded
        try:
            target = Target.parse(table["target"])
        except (BadTarget, TypeError, KeyError):
            continue  # a mistake of its own
        if target.fold() not in first:
            first[target.fold()] = document.line(place), target
            continue
        line, other = first[target.fold()]
        differs = "" if other == target else f" as '{other}', and names that differ only in case are one table"
        yield document.mistake(place, f"'{target}' is the target of another table too, on line {line}{differs}")


class ConfigInvalid(Terminal):
    """The configuration can be read, and fields or values in it are wrong. All mistakes are told at once, each with its
    line."""

    code = "MF1103"

    def __init__(self, path: str, mistakes: tuple[Mistake, ...]) -> None:
        self.path, self.mistakes = path, mistakes

    def what(self) -> str:
        return "\n".join(self._mistakes())

    def next(self) -> str:
        return "Correct the file and run the same command again; nothing was done."

    def message_lines(self) -> Sequence[str]:
        return [*self._mistakes(), self.next()]

    def _mistakes(self) -> list[str]:
        count = "a mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = [f"{self.path}:{m.line}: {m.field}: {m.reason}" for m in self.mistakes]
        return [f"The configuration has {count}:", *lines]


class OptionInvalid(Terminal):
    """A value that was given before the command, in place of one in the configuration, is wrong."""

    code = "MF1104"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def what(self) -> str:
        return f"The option --{self.name.replace('_', '-')} {self.reason}."

    def next(self) -> str:
        return "Correct the option and run the same command again; nothing was done."


class SeveralLandingZones(Terminal):
    """The configuration spreads its tables over several landing zones, and a command works with one of them."""

    code = "MF1113"

    def __init__(self, path: str, zones: tuple[str, ...]) -> None:
        self.path, self.zones = path, zones

    def what(self) -> str:
        return f"{self.path} spreads its tables over {len(self.zones)} landing zones: {', '.join(self.zones)}."

    def next(self) -> str:
        return (
            "Say which one is meant, as in `mirrorfeed --landing-zone PLACE publish`, in Python by `landing_zone`; a"
            " run, a schedule or a deployment for each."
        )
