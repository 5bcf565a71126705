"""What a publication through the API loads: few lines of code, and no folder of the package that it does not need."""

from __future__ import annotations

import subprocess
import sys

MOST_LINES = 11_520
"""Of the package, with the loader of the configuration, without docstrings. A module that few tables need is imported
where it is used. Log records and options of loads in parts, delivery modes and variables raised it from 11,200."""
OTHER_ROOMS = ("archive.", "history", "monitor", "mirror.", "lint", "cli")
LOADED = """
import ast, sys
import mirrorfeed.api.feed, mirrorfeed.config.loader, mirrorfeed.orchestration.publish_run
import mirrorfeed.publish.change_sources.delta_feed
modules = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "mirrorfeed"}
for name, file in modules.items():
    text = open(file).read()
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    strings = [node for node in statements if isinstance(node.value, ast.Constant)]
    print(name, len(text.splitlines()) - sum(node.end_lineno - node.lineno + 1 for node in strings))
"""


def test_publication_loads_few_lines_and_no_room_that_it_does_not_need() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = {name: int(lines) for name, lines in map(str.split, ran.stdout.splitlines())}
    assert [name for name in loaded if name.startswith(tuple(f"mirrorfeed.{room}" for room in OTHER_ROOMS))] == []
    assert sum(loaded.values()) <= MOST_LINES, sorted(loaded.items(), key=lambda each: -each[1])
