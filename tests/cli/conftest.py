"""What tests of the command share."""

from __future__ import annotations

import io
import logging
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cli.fake_database import FakeDatabase
from headrace.tools.cli.command import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def _hooks_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the command does to its process."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)


@dataclass
class Command:
    """Runs the command against a fake database; ``out`` and ``err`` are what it wrote."""

    directory: Path
    capture: pytest.CaptureFixture[bytes]
    patch: pytest.MonkeyPatch
    database: FakeDatabase = field(default_factory=FakeDatabase)
    connect: Callable[..., FakeDatabase] | None = None
    out: str = ""
    err: str = ""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> int:
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        connect = self.connect or (lambda *_, **_given: self.database)
        code = main(["--data", str(self.directory), *arguments], connect)
        self.out, self.err = (written.decode() for written in self.capture.readouterr())
        return code

    def sql(self, text: str, *arguments: str) -> int:
        return self("sql", *arguments, "-c", text)


@pytest.fixture
def command(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Command:
    return Command(tmp_path, capfdbinary, monkeypatch)
