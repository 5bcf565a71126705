"""What a publication through the API loads: no room that it does not need."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import sys, mirrorfeed.api.feed, mirrorfeed.orchestration.publish_run, mirrorfeed.publish.sources.delta_feed
others = ("archive.", "history", "monitor", "mirror.", "lint", "cli")
print([name for name in sys.modules if name.startswith(tuple(f"mirrorfeed.{room}" for room in others))])
"""


def test_publication_loads_no_module_of_archive_history_monitor_mirror_lint_or_cli() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]"]
