"""The outcomes of tests in the XML of JUnit, which servers for continuous integration read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.testing.running import TestOutcome

_NOT_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(file: Path, outcomes: Sequence[TestOutcome]) -> None:
    """Write a report with one suite for each file of tests.

    Raises:
        OSError: if it cannot be written.
    """
    root = ET.Element("testsuites")
    suites: dict[str, list[TestOutcome]] = {}
    for each in outcomes:
        suites.setdefault(str(each.script.file), []).append(each)
    for name, found in suites.items():
        failures = [each.failure for each in found if each.failure is not None]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(found)),
            failures=str(sum(not each.is_error for each in failures)),
            errors=str(sum(each.is_error for each in failures)),
            time=f"{sum(each.seconds for each in found):.3f}",
        )
        for each in found:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=name,
                name=each.test.name,
                file=name,
                line=str(each.test.line),
                time=f"{each.seconds:.3f}",
            )
            if each.failure is not None:
                text = _NOT_XML.sub("\ufffd", str(each.failure))
                kind = "error" if each.failure.is_error else "failure"
                ET.SubElement(case, kind, message=text.split("\n", 1)[0]).text = text
    file.parent.mkdir(parents=True, exist_ok=True)
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
