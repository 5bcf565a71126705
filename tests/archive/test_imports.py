"""Modules that the publication of a table without archived files imports."""

from __future__ import annotations

import subprocess
import sys


def test_a_publication_loads_no_module_of_archives() -> None:
    code = (
        "import sys, mirrorfeed.publish.sources.delta_feed, mirrorfeed.publish.sources.change_source\n"
        "print([name for name in sys.modules if name.startswith('mirrorfeed.archive.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]"]
