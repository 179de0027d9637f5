"""A run file is read whole to be checked once per machine, and again after any change."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.spine import Spine, check_run, forget_runs, read_to_check, write_run
from headrace.algebra.spine.open_runs import LEAST_BYTES, Register
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.errors import Code, HeadraceError

LAYOUT = Layout(("k",), pa.schema([("k", pa.int64())]), pa.schema([pa.field(WEIGHT, pa.int64())]))


def numbers(rows):
    values = np.arange(rows, dtype=np.int64)
    table = pa.table({HASH: values, "k": values, WEIGHT: np.ones(rows, np.int64)})
    return ZSet(LAYOUT, table.cast(LAYOUT.schema))


@pytest.fixture
def written(tmp_path):
    forget_runs()
    return write_run(tmp_path, numbers(100_000))


def looked_up(directory, file):
    """Look up one key as a process does that has just been started; return the bytes it checked."""
    forget_runs()
    before = read_to_check()
    found = Spine.open(directory, LAYOUT, [file]).lookup(np.array([7]), [pa.array([7])])[1]
    assert found.table["k"].to_pylist() == [7]
    return read_to_check() - before


def test_what_this_machine_wrote_is_not_read_whole_by_a_new_process(tmp_path, written):
    assert written.bytes > 10 * LEAST_BYTES
    assert looked_up(tmp_path, written) == 0
    script = (
        "import sys, json; from pathlib import Path\n"
        "from headrace.algebra.spine import RunFile, open_run, read_to_check\n"
        "from headrace.algebra.zset import Layout\n"
        "file, layout = map(json.loads, sys.argv[2:])\n"
        "open_run(Path(sys.argv[1]), RunFile.of_json(file), Layout.of_json(layout))\n"
        "print(read_to_check())\n"
    )
    given = (str(tmp_path), json.dumps(written.to_json()), json.dumps(LAYOUT.to_json()))
    process = [sys.executable, "-c", script, *given]
    assert subprocess.check_output(process, text=True).strip() == "0"


def test_a_file_that_came_from_elsewhere_is_checked_once(tmp_path, written):
    copied = tmp_path / "other"
    copied.mkdir()
    (copied / written.pack).write_bytes((tmp_path / written.pack).read_bytes())
    assert looked_up(copied, written) == written.bytes
    assert looked_up(copied, written) == 0


def test_a_file_that_was_changed_is_checked_again(tmp_path, written):
    path = tmp_path / written.pack
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(HeadraceError) as failure:
        looked_up(tmp_path, written)
    assert failure.value.code is Code.CORRUPT


def test_a_check_of_what_is_stored_reads_every_byte(tmp_path, written):
    path = tmp_path / written.pack
    check_run(tmp_path, written, LAYOUT)
    assert looked_up(tmp_path, written) == 0
    with path.open("r+b") as file:
        file.seek(written.bytes // 2)
        file.write(b"\xff\x00\xff\x00")
    with pytest.raises(HeadraceError):
        check_run(tmp_path, written, LAYOUT)


def test_processes_share_a_register_and_one_that_is_damaged_or_emptied_only_costs_checks(tmp_path):
    file = tmp_path / "run"
    file.write_bytes(b"x" * LEAST_BYTES)
    mine, other = (Register(tmp_path / "register" / "checked") for _ in range(2))
    assert not other.knows(str(file), "c")
    mine.add(str(file), "c")
    assert other.knows(str(file), "c")
    assert not other.knows(str(file), "d")
    (tmp_path / "register" / "checked").write_bytes(b"\x00half a line")
    assert not Register(tmp_path / "register" / "checked").knows(str(file), "c")
    (tmp_path / "register" / "checked").unlink()
    mine.add(str(file), "e")
    assert Register(tmp_path / "register" / "checked").knows(str(file), "e")
    assert not Register(tmp_path / "missing").knows(str(tmp_path / "none"), "c")
