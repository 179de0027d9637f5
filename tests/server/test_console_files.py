"""The files of the console: what is from others, what they load, how they look."""

from __future__ import annotations

import hashlib
import json
import re

from headrace.interfaces.server.pages import CONSOLE

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


def test_texts_have_contrast_in_both_themes():
    style = (CONSOLE / "style.css").read_text()
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", style))
    colours = {name: both.split(", ") for name, both in pairs.items()}
    for theme in (0, 1):
        for text in ("text", "dim", "accent", "good", "warn", "bad"):
            for ground in ("bg", "panel", "raised"):
                found = contrast(colours[text][theme], colours[ground][theme])
                assert found >= 4.5, (text, ground, theme, round(found, 2))
        for text, ground in (
            ("on-accent", "accent"),
            ("bg", "bad"),
            ("bad", "bad-soft"),
            ("dim", "bad-soft"),
        ):
            assert contrast(colours[text][theme], colours[ground][theme]) >= 4.5, (text, theme)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as the Web Content Accessibility Guidelines define it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
