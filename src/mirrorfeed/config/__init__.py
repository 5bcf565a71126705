"""The user's file, `mirrorfeed.yml`, and what stands in it: frozen, checked values."""

from mirrorfeed import FILE
from mirrorfeed.config.fields import ONELAKE, onelake_address
from mirrorfeed.config.file import EXAMPLE, ConfigInvalid, load
from mirrorfeed.config.model import Config, Options, Table, UnknownTable

__all__ = [
    "EXAMPLE",
    "FILE",
    "ONELAKE",
    "Config",
    "ConfigInvalid",
    "Options",
    "Table",
    "UnknownTable",
    "load",
    "onelake_address",
]
