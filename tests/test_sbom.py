"""The software bill of materials of a release."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

from tests.test_wheel import ROOT, run, uv
from tools.sbom import complete


def test_bill_of_materials_lists_wheel_and_dependencies_with_hashes(tmp_path: Path) -> None:
    (export,) = re.findall(r'"\$\(UV\)" (export .*) --output-file', (ROOT / "Makefile").read_text(encoding="utf-8"))
    wheel = tmp_path / "mirrorfeed-0.1.0+g123-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    bill = complete(json.loads(run(uv(), *export.split(), "--project", ROOT)), wheel)

    main = bill["metadata"]["component"]
    assert (main["name"], main["version"], main["purl"]) == (
        "mirrorfeed",
        "0.1.0+g123",
        "pkg:pypi/mirrorfeed@0.1.0%2Bg123",
    )
    assert main["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"wheel").hexdigest()}]
    parts = {each["bom-ref"]: each for each in bill["components"]}
    for part in parts.values():
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
        assert all(file["hashes"] for file in part["externalReferences"])
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    reached, pending = set[str](), {main["bom-ref"]}
    while pending:
        reached |= pending
        pending = set.union(*(needs[each] for each in pending)) - reached
    assert reached == parts.keys() | {main["bom-ref"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split("[<>=~]", each)[0] for each in requirements}
    assert names <= {parts[each]["name"] for each in needs[main["bom-ref"]]}
    assert "pyspark" not in {each["name"] for each in parts.values()}  # a runtime includes it
