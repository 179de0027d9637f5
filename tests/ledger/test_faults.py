"""Crashes, damage, second writers: writes are atomic, and errors are readable."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import DirectoryLock, EpochCommit, Ledger, Mode, NewObject, schema
from headrace.types import Epoch
from ledger.building import Clock, segment, step
from length import choose, each

ROOT = Path(__file__).parents[2]

CRASH = """
import os, signal, sys
from headrace.storage.ledger import *
from headrace.algebra.spine import RunFile
stage = sys.argv[2]
def crash(at):
    if at == stage:
        os.kill(os.getpid(), signal.SIGKILL)
ledger = Ledger.open(sys.argv[1], fault=crash)
stage, wanted = "", stage
ledger.acquire()
view = NewObject(ledger.ids.relation(), "view", "view", {}, (1,), (NewArrangement("view"),))
build = NewBuild(view.relation, view.relation, {}, (1,), (NewArrangement("state"),))
stage = wanted
run = lambda owner, name: NewRun(RunFile(name, 0, 1, 1, "c", 0, 0), owner)
ledger.commit(EpochCommit(2, "crash",
    reads=(Read(1, 0, 7),),
    runs=(run("1/0", "new"), run("view", "base")),
    created=(view,),
    builds=(build,),
    merges=(Merge("1/0", (("old", 0),), run("1/0", "merged")),),
))
"""

STAGES = (
    "checked",
    "epoch",
    "dropped",
    "created",
    "builds",
    "arranged",
    "reads",
    "runs",
    "merges",
    "repaired",
    "before commit",
)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def stored(address: str | Path, ledger: Ledger, orders: NewObject) -> str | Path:
    """A closed ledger at epoch 2, with ten rows in the log and one run."""
    from ledger.building import run

    ledger.log.append(orders.relation, segment(10))
    step(ledger, run("1/0", "old"))
    ledger.close()
    return address


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    """The same in a file."""
    from ledger.building import relation, run

    file = tmp_path / "ledger.db"
    with Ledger.open(file, clock=clock) as ledger:
        ledger.acquire()
        made = relation(ledger, "orders")
        ledger.commit(EpochCommit(Epoch(0), "first", created=(made,)))
        ledger.log.append(made.relation, segment(10))
        step(ledger, run("1/0", "old"))
    return file


def url(place: str | Path) -> str:
    return f"sqlite:///{place}" if isinstance(place, Path) else place


@pytest.mark.parametrize(
    "stage", choose(["created", "before commit", "after commit"], [*STAGES, "after commit"])
)
def test_a_writer_killed_within_a_commit_leaves_all_or_nothing(
    stored: str | Path, stage: str
) -> None:
    died = python(CRASH, url(stored), stage)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with Ledger.open(stored) as ledger:
        committed = stage == "after commit"
        assert ledger.head.epoch == (3 if committed else 2)
        assert ledger.head.position(ledger.relations.existing()[0].relation) == (
            7 if committed else 0
        )
        assert [found.name for found in ledger.relations.existing()] == ["orders", "view"][
            : 1 + committed
        ]
        wanted = {"old", "new", "base", "merged"} if committed else {"old"}
        assert ledger.files.known().packs == wanted
        live = {run.file.pack for run in ledger.spines.runs(ledger.spines.arrangements()[0].id)}
        assert live == ({"new", "merged"} if committed else {"old"})
        ledger.acquire()
        step(ledger)


MARK = """
import os, signal, sys
from headrace.storage.ledger import *
path, doing, stage = sys.argv[1:]
def crash(at):
    if armed and at == stage:
        os.kill(os.getpid(), signal.SIGKILL)
armed = False
ledger = Ledger.open(path, fault=crash)
ledger.acquire()
entry = Dirty(1, "late", 1.0, slice=Slice("a = 1"), repair=RepairPath.REPLAY)
found = Dirty(1, "late", 2.0, slice=Slice("a = 2"), repair=RepairPath.REPLAY)
(old,) = ledger.dirty.mark(entry)
armed = True
if doing == "mark":
    ledger.dirty.mark(found)
elif doing == "begin":
    ledger.dirty.change(old.id, state=DirtyState.REPAIRING)
elif doing == "compare":
    evidence = Evidence(1, 1, 2.0, found.slice, {}, "", ({"a": 2},), (), 1)
    ledger.evidence.record(1, {"done": 1}, evidence, [found])
else:
    ledger.commit(EpochCommit(2, "crash", cleaned=(old.id,), dirtied=(found,)))
"""


KEPT = ("compare", "after commit")
"""Where a comparison is recorded, with its evidence and its dirty entry."""


@pytest.mark.parametrize(
    ("doing", "stage", "left"),
    each(
        5,
        [
            ("mark", "marked", ["a = 1 open"]),
            ("mark", "before commit", ["a = 1 open"]),
            ("mark", "after commit", ["a = 1 open", "a = 2 open"]),
            ("begin", "before commit", ["a = 1 open"]),
            ("begin", "after commit", ["a = 1 repairing"]),
            ("compare", "evidence", ["a = 1 open"]),
            ("compare", "before commit", ["a = 1 open"]),
            ("compare", "after commit", ["a = 1 open", "a = 2 open"]),
            ("repair", "repaired", ["a = 1 open"]),
            ("repair", "before commit", ["a = 1 open"]),
            ("repair", "after commit", ["a = 2 open"]),
        ],
    ),
)
def test_no_dirty_entry_is_lost_by_a_crash(
    stored: str | Path, doing: str, stage: str, left: list[str]
) -> None:
    died = python(MARK, url(stored), doing, stage)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with Ledger.open(stored, Mode.READ) as ledger:
        assert [f"{e.slice.where} {e.state}" for e in ledger.head.dirty] == left
        evidence = [each.id for each in ledger.evidence.found()]
        marked = [e.origin["evidence"] for e in ledger.head.dirty if "evidence" in e.origin]
        assert marked == evidence
        assert bool(evidence) == bool(ledger.evidence.progress()) == ((doing, stage) == KEPT)


def test_a_fault_is_offered_at_every_stage(ledger: Ledger, orders: NewObject) -> None:
    del orders
    seen: list[str] = []
    ledger._transactions.fault = seen.append
    step(ledger)
    assert tuple(seen) == (*STAGES, "after commit")


# Damage


def damaged(path: Path, mode: Mode = Mode.WRITE) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        Ledger.open(path, mode)
    assert caught.value.code is Code.CORRUPT
    assert str(path) in caught.value.primary
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("content", [b"", b"this is a text file\n" * 100, b"SQLite"])
def test_a_file_that_is_no_database_is_corrupt_not_new(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    damaged(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("size", [100, 4096, 20_000])
def test_a_truncated_database_is_corrupt(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)
    damaged(path)


def test_a_damaged_page_is_found_when_the_ledger_is_opened(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 3 * 4096 + 200] = b"\xff" * 200
    path.write_bytes(data)
    damaged(path)


@pytest.mark.parametrize("table", each(9, sorted(schema.metadata.tables)))
def test_a_missing_table_is_corrupt(path: Path, table: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f'DROP TABLE "{table}"')
    connection.close()
    assert table in (damaged(path).detail or "")


def test_a_foreign_database_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    damaged(path)


def test_a_missing_ledger_beside_data_is_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "x.arrow").touch()
    with pytest.raises(HeadraceError, match="is missing") as caught:
        Ledger.open(tmp_path / "ledger.db")
    assert caught.value.code is Code.CORRUPT
    assert not (tmp_path / "ledger.db").exists()


def test_damage_while_open_is_said_too(path: Path) -> None:
    with Ledger.open(path) as ledger:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE rejects")
        connection.close()
        with pytest.raises(HeadraceError, match="is damaged") as caught:
            ledger.rejects.newest(ledger.relations.existing()[0].relation)
        assert caught.value.code is Code.CORRUPT


@pytest.mark.parametrize(("version", "how"), [(1, "older"), (schema.FORMAT + 1, "newer")])
def test_another_format_is_refused(path: Path, version: int, how: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"UPDATE meta SET value = '{version}' WHERE key = 'format'")
    connection.close()
    with pytest.raises(HeadraceError, match=f"has format {version}, {how} than") as caught:
        Ledger.open(path)
    assert caught.value.code is Code.UNSUPPORTED


def test_an_address_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    for address, code in (
        ("not a url", Code.INVALID),
        ("mysql://host/db", Code.UNSUPPORTED),
        ("sqlite://", Code.UNSUPPORTED),
        (tmp_path / "none" / "ledger.db", Code.INVALID),
        (tmp_path, Code.INVALID),
    ):
        with pytest.raises(HeadraceError) as caught:
            Ledger.open(address)
        assert caught.value.code is code


def test_a_ledger_at_an_odd_path_is_opened(tmp_path: Path) -> None:
    directory = tmp_path / "a b%20c?d#é&mode=ro"
    directory.mkdir()
    for _ in range(2):
        with Ledger.open(directory / "ledger.db") as ledger:
            ledger.acquire()
            step(ledger)
    assert [p.name for p in directory.iterdir() if p.suffix == ".db"] == ["ledger.db"]


# Reading only


def test_a_reader_sees_commits_and_writes_nothing(stored: str | Path) -> None:
    with Ledger.open(stored) as writer, Ledger.open(stored, Mode.READ) as reader:
        writer.acquire()
        step(writer)
        assert reader.head.epoch == writer.head.epoch == 3
        assert reader.settings.identity == writer.settings.identity
        with pytest.raises(HeadraceError, match="open for reading only") as caught:
            reader.acquire()
        assert caught.value.code is Code.INVALID


def test_a_reader_does_not_create_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="does not exist"):
        Ledger.open(tmp_path / "ledger.db", Mode.READ)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_a_closed_ledger_is_a_ledger(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db", Mode.READ) as copy:
        assert copy.head.epoch == 2


# The lock of a directory

HOLD = """
import os, subprocess, sys
from pathlib import Path
from headrace.storage.ledger import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
subprocess.Popen([sys.executable, "-c", "import os; os.read(0, 1)"])
if os.fork() == 0:  # a fork that executes nothing, as multiprocessing makes them
    print("held", flush=True)
os.read(0, 1)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HeadraceError) as caught:
            DirectoryLock(tmp_path)
        assert caught.value.code is Code.CONFLICT
        wanted = f'data directory "{tmp_path}" is open for writing in process {holder.pid}'
        assert caught.value.primary == wanted
        assert "--url" in (caught.value.hint or "")
        holder.kill()
        holder.wait()
        # Its children live on, and do not keep the lock.
        DirectoryLock(tmp_path).release()


def test_a_second_opener_in_one_process_is_refused_too(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path), pytest.raises(HeadraceError, match="in this process already"):
        DirectoryLock(tmp_path)
    with DirectoryLock(tmp_path):
        pass


def test_a_forked_child_that_ends_does_not_release_the_lock(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        forked = os.fork()
        if forked == 0:
            os._exit(0)
        os.waitpid(forked, 0)
        with pytest.raises(HeadraceError):
            DirectoryLock(tmp_path)


def test_a_directory_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        DirectoryLock(tmp_path / "none")
    assert caught.value.code is Code.INVALID


def test_epoch_zero_is_the_empty_database(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert (ledger.head.epoch, ledger.head.upper, ledger.epochs.newest()) == (0, 1, ())
        assert (
            ledger.relations.existing(),
            ledger.head.positions,
            ledger.spines.arrangements(),
        ) == ((), {}, ())
        assert ledger.acquire() == 1
        assert ledger.commit(EpochCommit(Epoch(0), "a")) == 1
