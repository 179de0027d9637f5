"""The console's modules that need no page: spans, layout, problems, words; run by Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.interfaces.server.pages import CONSOLE

TESTS = Path(__file__).parent / "console"


@pytest.mark.parametrize("name", sorted(each.name for each in TESTS.glob("*.test.mjs")))
def test_the_scripts_of_the_console(name: str, tmp_path: Path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    shutil.copytree(CONSOLE, tmp_path / "console")
    shutil.copytree(TESTS, tmp_path / "tests")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    ran = subprocess.run(
        [node, "--test", "--test-reporter=tap", f"tests/{name}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "# fail 0" in ran.stdout
