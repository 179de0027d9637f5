"""Private Spark API is used in one package: another version of Spark changes nothing elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parent
PRIVATE = re.compile(r"\b_jdf\b|\b_jsparkSession\b|\.nodeName\(|\.withNewChildren\(")


def test_plans_and_sessions_of_the_jvm_are_reached_in_catalyst_alone():
    using = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if PRIVATE.search(path.read_text())
    }
    assert not {path for path in using if not path.startswith("planning/catalyst/")}
