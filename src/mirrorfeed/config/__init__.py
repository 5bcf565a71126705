"""The configuration file `mirrorfeed.yml`, as frozen and validated values."""

from mirrorfeed import FILE
from mirrorfeed.config.errors import ConfigInvalid, UnknownTable
from mirrorfeed.config.loader import EXAMPLE, load
from mirrorfeed.config.model import Config, Table
from mirrorfeed.config.options import Options
from mirrorfeed.config.values import ONELAKE, onelake_address

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
