"""A virtual environment like a user's: Headrace as a copy, with what it depends on, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

SOURCES = Path(__file__).parents[1] / "src"
_NOT_OF_A_COPY = {"direct_url.json", "RECORD"}


def environment(place: Path, *extras: str) -> Path:
    """Make a virtual environment with Headrace and some of its extras; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    site = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = site / "site-packages"
    own = distribution("headrace")
    shutil.copytree(SOURCES / "headrace", site / "headrace")
    for file in own.files or ():
        if file.parent.suffix == ".dist-info" and file.name not in _NOT_OF_A_COPY:
            _linked(Path(str(own.locate_file(file))), site / file)
    for each in _needed(own, extras, set()):
        for file in each.files or ():
            if ".." not in file.parts:
                _linked(Path(str(each.locate_file(file))), site / file)
    return place / "bin" / "python"


def _needed(own: Distribution, extras: tuple[str, ...], found: set[str]) -> list[Distribution]:
    """Return what a distribution depends on, without what was ``found`` already."""
    needed = []
    for text in own.requires or ():
        each = Requirement(text)
        wanted = each.marker is None or any(
            each.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        if wanted and each.name not in found:
            found.add(each.name)
            other = distribution(each.name)
            needed += [other, *_needed(other, tuple(each.extras), found)]
    return needed


def _linked(file: Path, target: Path) -> None:
    if not file.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)
