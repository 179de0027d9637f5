"""Which tests a change affects, by the import graph: what `make affected` runs.

A test file is selected if it, or a module of the tests that it imports, has changed; if it imports
a module of the package that has changed, or that depends on one that has; or if its folder mirrors
a package that has changed. What reaches a change only through a whole database (``import
headrace``, or the fixtures ``db`` and ``oracle``) is not selected: that is all of tests/views and
tests/e2e after nearly every change, and `make test` runs it.

Usage: python tests/affected.py [COMMIT]: the change since a commit, by default since the branch
left origin/main, or since the last commit where there is no such branch. Prints one path a line.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
TESTS, SOURCE = ROOT / "tests", ROOT / "src"
WHOLE = {"headrace", "harness", "conftest"}
"""What a test imports to have a whole database."""


def changed_files(base: str) -> set[Path]:
    """Return the files that differ from a commit, and those that git does not know yet."""
    listed = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in listed}


def default_base() -> str:
    """Return where the branch left origin/main, or the last commit."""
    found = subprocess.run(
        ["git", "merge-base", "HEAD", "origin/main"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "HEAD"


def affected(changed: set[Path]) -> list[Path]:
    """Return the test files that a change of these files affects, by path."""
    modules = {module_of(path) for path in changed if path.is_relative_to(SOURCE)} - {""}
    graph = grimp.build_graph("headrace", cache_dir=None)
    reached = set(modules)
    for module in modules & graph.modules:
        reached |= graph.find_downstream_modules(module)
    mirrors = {module.split(".")[1] for module in modules if module.count(".") >= 1}
    return sorted(
        path
        for path in TESTS.rglob("test_*.py")
        if path.relative_to(TESTS).parts[0] in mirrors
        or imports_of(path)[0] & reached
        or imports_of(path)[1] & changed
    )


@cache
def imports_of(path: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Return the modules of the package, and the files of the tests, that a file is built on."""
    modules: set[str] = set()
    files: set[Path] = {path}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name in WHOLE:
                continue
            if name.startswith("headrace."):
                modules.add(name)
            helper = TESTS / Path(*name.split(".")).with_suffix(".py")
            if helper.is_file() and helper not in files:
                below, others = imports_of(helper)
                modules |= below
                files |= others
    return frozenset(modules), frozenset(files)


def module_of(path: Path) -> str:
    """Return the name of the module in a file of the package; empty where it has none."""
    if path.suffix != ".py":
        return ""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def git(*arguments: str) -> list[str]:
    """Return the lines that a git command prints."""
    command = ["git", *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.split("\n")[:-1]


if __name__ == "__main__":
    base = sys.argv[1] if len(sys.argv) > 1 else default_base()
    print("\n".join(str(path.relative_to(ROOT)) for path in affected(changed_files(base))))
