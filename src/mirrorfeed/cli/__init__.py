"""The commands. Each reads the configuration, calls one function of the package and shows what it returned."""

from mirrorfeed.cli import fabric, mirror, publish
from mirrorfeed.cli.root import main

__all__ = ["fabric", "main", "mirror", "publish"]
