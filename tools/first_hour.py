"""Run the commands of `docs/first-hour.md` and write their output to the page (`python -m tools.first_hour`).

Needs the Databricks CLI on PATH. The workspace is simulated. The page is run like a script: each snippet in its order,
in a folder that contains this clone as `mirrorfeed`. A `text` snippet gets the output of the snippet before it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fixtures.workspace import workspace
from tools.pages import ROOT

PAGE = ROOT / "docs/first-hour.md"
HOST = "https://adb-1234567890123456.7.azuredatabricks.net"
"""Address of the workspace on the page, instead of the simulated one."""
FOLDER = "/home/ada/laptop"
"""Folder on the page. It is as long as a temporary folder, so that the lines of tables remain aligned."""
_SNIPPET = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def run_page(text: str, folder: Path) -> str:
    """Return the page with the output of its commands. They run in `folder`, which must be empty."""
    (folder / "mirrorfeed").symlink_to(ROOT)
    place, output = folder, ""
    with workspace() as (_, address):

        def snippet(match: re.Match[str]) -> str:
            nonlocal place, output
            kind, code = match.groups()
            code = code.replace(HOST, address)
            match kind:
                case "text":
                    return f"```text\n{_shown(output, address, folder)}```"
                case "json":
                    (place / "answers.json").write_text(code, encoding="utf-8")
                case "python":
                    subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
                case "sh":
                    clone = ROOT if code == "make dist\n" else None
                    output, place = _run(code, clone or place, address, back=place if clone else None)
            return match[0]

        return _SNIPPET.sub(snippet, text)


def _run(code: str, place: Path, address: str, back: Path | None) -> tuple[str, Path]:
    """Return the output of shell commands, and the folder in which the next ones run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DATABRICKS_", "BUNDLE_"))}
    environment |= {"DATABRICKS_HOST": address, "DATABRICKS_TOKEN": "none", "DATABRICKS_CONFIG_FILE": os.devnull}
    environment |= {"DATABRICKS_CACHE_ENABLED": "false", "COLUMNS": "100"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(ROOT / ".uv/bin")])
    script = f"{code}\nprintf '\\n%s' \"$PWD\""
    options = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    printed, _, end = subprocess.run(["sh", "-c", script], check=True, **options).stdout.rpartition("\n")
    return printed, back or Path(end)


def _shown(output: str, address: str, folder: Path) -> str:
    """Return the output without what belongs to this machine."""
    text = output.replace(address, HOST).replace(str(folder), FOLDER)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def main() -> None:
    with TemporaryDirectory() as folder:
        text = run_page(PAGE.read_text(encoding="utf-8"), Path(folder).resolve())
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
