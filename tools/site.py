"""Prepare the build of the site (`make docs`): the page of the changelog, and the configuration with the repository.

Uses only the standard library. Git ignores the files that it writes.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "docs/zensical.toml"
PREPARED = CONFIG.with_name(".zensical.toml")
CHANGELOG = ROOT / "docs/changelog.md"


def changelog(text: str) -> str:
    """Return the changelog as a page of the site. Its links are relative to the folder `docs`."""
    return (
        text.replace("## [Unreleased]", "## Unreleased")
        .replace("](docs/", "](")
        .replace("](SECURITY.md)", "](security.md)")
    )


def config(text: str, project: str) -> str:
    """Return the configuration of the site, with the address `Repository` in `pyproject.toml`, if there is one."""
    repository = tomllib.loads(project)["project"].get("urls", {}).get("Repository")
    return text + (f"\n[project.extra]\nrepository = {json.dumps(repository)}\n" if repository else "")


if __name__ == "__main__":
    CHANGELOG.write_text(changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")), encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    PREPARED.write_text(config(CONFIG.read_text(encoding="utf-8"), project), encoding="utf-8")
