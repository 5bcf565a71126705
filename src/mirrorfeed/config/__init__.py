"""The configuration file `mirrorfeed.yml`, as frozen and validated values."""

FILE = "mirrorfeed.yml"
"""The default configuration file. Here, because the help of commands shows it, and must not wait for pydantic."""
