"""Copy the files of the bundle that are equal in every project into the template for `databricks bundle init`.

`bundle init` reads only the folder of the template, so it needs its own files. The bundle of this repository is their
source, because the tests check it and deploy it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tools.pages import ROOT

FOLDER = ROOT / "template/template/{{.project_name}}"
_SOURCES = ("resources/*", "notebooks/*.ipynb", ".ci/databricks", ".ci/uv.txt")


def copies() -> dict[Path, Callable[[], str]]:
    """Return the copied files of the template, each with a function that returns the content of its source."""
    sources = [path for pattern in _SOURCES for path in sorted(ROOT.glob(pattern))]
    return {FOLDER / path.relative_to(ROOT): partial(path.read_text, encoding="utf-8") for path in sources}


def superfluous() -> Iterator[Path]:
    """Yield the copies whose source no longer exists."""
    for folder in ("resources", "notebooks"):
        yield from {*(FOLDER / folder).glob("*")} - {*copies()}
