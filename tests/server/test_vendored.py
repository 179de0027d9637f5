"""What the console has from others is what it says it is, with its licence."""

from __future__ import annotations

import hashlib
import json
import re

from headrace.server.pages import CONSOLE

VENDOR = CONSOLE / "vendor"
NOTES = {"vendored.json", "LICENSES.txt", "codemirror.entry.js"}


def test_each_vendored_file_has_its_checksum_and_its_packages_their_licences():
    listed = json.loads((VENDOR / "vendored.json").read_text())["files"]
    assert set(listed) == {path.name for path in VENDOR.iterdir()} - NOTES
    licences = (VENDOR / "LICENSES.txt").read_text()
    for name, of in listed.items():
        content = (VENDOR / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == of["sha256"], name
        assert len(content) <= 400_000
        for package, version in of["packages"].items():
            assert f"{package} {version}\n" in licences


def test_nothing_is_loaded_from_elsewhere_and_no_data_becomes_markup():
    for path in CONSOLE.rglob("*"):
        if path.suffix not in {".js", ".html", ".css"} or path.parent == VENDOR:
            continue
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        found = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert found <= {"http://www.w3.org/2000/svg"}, path
