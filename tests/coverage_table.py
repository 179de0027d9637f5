"""Which queries are held against Spark batch, as a page: ``python tests/coverage_table.py``.

The page is made from the tests themselves: the named queries of ``tests/views``, and the published
workloads of ``tests/suites`` with what each list says is refused.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/sql/coverage.md"
VIEWS = ROOT / "tests/views"
SUITES = ROOT / "tests/suites"

_HEAD = """\
# Queries that are tested

Made by `python tests/coverage_table.py` from the tests. Each query is a view over tables whose rows are inserted, updated and
deleted at random; after every epoch its rows, its changelog and its past are compared with Spark batch. `make random-queries`
tests as many random ones as it is told to.

## Published workloads

TPC-H and Nexmark are part of `make test`; TPC-DS, and longer histories of all three, run by `make suites`.

| workload | queries | kept incrementally | refused |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    rows = [_workload(folder) for folder in sorted(SUITES.iterdir()) if _queries(folder)]
    sections = [_section(path) for path in sorted(VIEWS.glob("test_*.py"))]
    return _HEAD + "\n".join(rows) + "\n" + "".join(sections)


def _queries(folder: Path) -> list[Path]:
    return sorted(folder.glob("q*.sql")) if folder.is_dir() else []


def _workload(folder: Path) -> str:
    lines = (SUITES / "not_kept.txt").read_text("utf-8").splitlines()
    refused = [line.split(maxsplit=2) for line in lines if line.startswith(f"{folder.name} ")]
    queries = len(_queries(folder))
    why = "; ".join(f"{query}: {reason}" for _, query, reason in refused)
    return f"| {folder.name} | {queries} | {queries - len(refused)} | {why or 'none'} |"


def _section(path: Path) -> str:
    found = _named_queries(path)
    if not found:
        return ""
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or path.stem
    lines = ["", f"## {doc.splitlines()[0].rstrip('.')}", "", "| query | |", "|---|---|"]
    for name, query in found:
        text = re.sub(r"\s+", " ", query).strip().replace("|", "\\|")
        lines.append(f"| {name} | `{text}` |")
    return "\n".join(lines) + "\n"


def _named_queries(path: Path) -> list[tuple[str, str]]:
    """Return the queries in a test module's dictionaries of names and queries."""
    found = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)):
            continue
        try:
            given = ast.literal_eval(node.value)
        except ValueError:
            continue
        found += [(k, v) for k, v in given.items() if isinstance(v, str) and _is_query(v)]
    return found


def _is_query(text: str) -> bool:
    return "SELECT" in text or "|>" in text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
