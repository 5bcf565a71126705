"""The configuration file `mirrorfeed.yml`, as frozen and validated values."""

FILE = "mirrorfeed.yml"
"""Default configuration file. Defined here, because the help of commands shows the name and must not wait for
pydantic."""
