"""The configuration file `mirrorfeed.yml`, as frozen and validated values."""

FILE = "mirrorfeed.yml"
"""Default configuration file. Defined here, so that the help of commands does not import pydantic."""
SCHEMA = "mirrorfeed.schema.json"
"""File with the JSON Schema of the configuration, in this folder and next to a new configuration file."""
