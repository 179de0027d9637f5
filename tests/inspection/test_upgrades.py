"""What an upgrade would do, said from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.tools.cli.command import main
from ledger.former import FORMATS, of_format

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_ledger_of_a_former_format_is_said_to_be_migrated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = of_format(FORMATS[0], tmp_path)
    before = (place / "ledger.db").read_bytes()
    assert main(["--data", str(place), "upgrade", "--check", "--format", "json"]) == 1
    (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert row["what"] == "ledger"
    assert f"has format {FORMATS[0]}" in row["why"]
    assert (place / "ledger.db").read_bytes() == before


def test_a_database_on_another_machine_is_not_upgraded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1", "upgrade", "--check"]) == 2
    assert "--data DIR" in capsys.readouterr().err
