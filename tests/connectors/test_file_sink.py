"""File sinks stay inside their directory, whatever links somebody puts into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.connectors.file_sink import FileFormat, Options, opened, place
from headrace.errors import Code, HeadraceError
from headrace.types import Epoch

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = pa.table({"a": [1], "__weight": pa.array([1], pa.int64())})


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "sinks" / "away").symlink_to(tmp_path / "outside")
    for path in ("away", "away/deeper"):
        with pytest.raises(HeadraceError, match="outside of the directory for sinks") as caught:
            place(Options(path), tmp_path)
        assert caught.value.code is Code.INVALID
    (tmp_path / "sinks" / "x").mkdir()
    (tmp_path / "sinks" / "other").symlink_to(tmp_path / "sinks" / "x")
    assert place(Options("other"), tmp_path) == place(Options("x"), tmp_path)


def test_a_sink_does_not_follow_links_that_come_later(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    sink = opened(Options("a/b", FileFormat.JSON), tmp_path, ())
    sink.write(Epoch(1), [CHANGES])
    directory = tmp_path / "sinks" / "a" / "b"
    (directory / f"{2:020d}.draft").symlink_to(outside / "secret")
    sink.write(Epoch(2), [CHANGES])
    assert (outside / "secret").read_text() == "kept"
    assert sorted(file.name for file in directory.iterdir()) == [f"{n:020d}.jsonl" for n in (1, 2)]
    (tmp_path / "sinks" / "a").rename(tmp_path / "moved")
    (tmp_path / "sinks" / "a").symlink_to(outside)
    with pytest.raises(HeadraceError, match="has become a symbolic link"):
        sink.write(Epoch(3), [CHANGES])
    assert [file.name for file in outside.iterdir()] == ["secret"]
