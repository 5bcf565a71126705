"""Select one landing zone of a configuration whose entries have several."""

from __future__ import annotations

from mirrorfeed.config.errors import ConfigInvalidError, option_invalid, several_landing_zones
from mirrorfeed.config.model import Config
from mirrorfeed.config.yaml_document import Document, Place, validate


def select_landing_zone(document: Document, config: Config, is_overridden: bool) -> Config:
    """Return the configuration with the selected landing zone in `Config.landing_zone`.

    If `is_overridden` is True, the caller of `load` selected the landing zone. An entry of `tables` without a landing
    zone gets the landing zone at the top level of the file. If the top level has none, the entry gets the selected
    landing zone. In the result, the field `landing_zone` of an entry is None if the entry has the selected landing
    zone.

    Raises `option_invalid` if no entry has the selected landing zone. Raises `several_landing_zones` if entries have
    different landing zones and `is_overridden` is False.
    """
    default = config.landing_zone  # of entries without `landing_zone`
    if is_overridden and "landing_zone" in document.data:
        if unset := document.unset.get(("landing_zone",)):
            raise ConfigInvalidError(path=config.path, mistakes=(unset,))
        faults: dict[Place, str] = {}
        data = {"landing_zone": document.data["landing_zone"], "tables": ()}
        config_of_file = validate(Config, data, config.path, faults)
        if config_of_file is None:
            raise ConfigInvalidError(
                path=config.path, mistakes=tuple(document.mistake(*fault) for fault in faults.items())
            )
        default = config_of_file.landing_zone
    zones = [entry.landing_zone or default for entry in config.entries]
    distinct = tuple(dict.fromkeys(zones))
    selected = config.landing_zone if is_overridden else zones[0]
    if len(distinct) > 1 and not is_overridden:
        raise several_landing_zones(path=config.path, zones=distinct)
    if selected not in distinct:
        reason = f"{selected!r} is not a landing zone of {config.path}, which has {', '.join(distinct)}"
        raise option_invalid(option="landing-zone", reason=reason)
    entries = [
        entry.model_copy(update={"landing_zone": None if zone == selected else zone})
        for entry, zone in zip(config.entries, zones, strict=True)
    ]
    return config.model_copy(update={"landing_zone": selected, "entries": tuple(entries)})
