"""Statements that are cancelled on their way: nothing half-made stays, and the session goes on."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import headrace
from asked import rows
from headrace import Code, HeadraceError
from headrace.io.connectors.files import source as files

pytestmark = pytest.mark.spark

ROWS = 400
JOINED = """SELECT a.v, count(*) AS n, sum(b.k) AS s FROM t a JOIN t b ON a.v = b.v GROUP BY a.v"""


@pytest.fixture
def loaded(tmp_path, spark):
    """A table of some rows; views are filled in parts of 50 rows."""
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, partitions=2, fill_rows=50
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.insert("t", [(k, k % 40) for k in range(ROWS)])
        yield db


def cancelled_at(db, text, when):
    """Run a statement that is cancelled as its progress says."""
    seen = []

    def progress(made):
        seen.append(made)
        if when(made):
            db.cancel()

    with pytest.raises(HeadraceError, match="cancelled") as caught:
        db.sql(text, progress=progress)
    assert caught.value.code is Code.CANCELLED
    return seen


@contextmanager
def cancelled_once(db, reached):
    """Cancel whatever statement a block runs until it ends, once something has been reached."""
    ended = threading.Event()

    def run():
        while not ended.wait(0.05):
            if reached():
                db.cancel()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with pytest.raises(HeadraceError, match="cancelled") as caught:
            yield
    finally:
        ended.set()
        thread.join()
    assert caught.value.code is Code.CANCELLED


def nothing_is_left(db, names=()):
    """Only these views exist, and only what the ledger names is on disk."""
    assert sorted(name for name, kind, *_ in db.sql("SHOW VIEWS")) == sorted(names)
    known = db.parts.ledger.files.known().packs
    assert {path.name for path in (db.directory / "runs").iterdir()} <= known
    assert not list((db.directory / "attempts").iterdir())


@pytest.mark.parametrize(
    "part", [*(pytest.param(rows, marks=pytest.mark.long) for rows in (0, 150)), ROWS]
)
def test_a_fill_that_is_cancelled_leaves_nothing(loaded, part):
    text = f"CREATE MATERIALIZED VIEW m AS {JOINED}"
    seen = cancelled_at(loaded, text, lambda made: made.done >= part)
    assert seen[-1].done >= part
    nothing_is_left(loaded)
    assert rows(loaded, "SELECT count(*) FROM t WHERE v = 1") == [(10,)]
    assert len(loaded.parts.ledger.spines.arrangements()) == 1
    loaded.sql("DELETE FROM t WHERE k >= 200")
    loaded.sql(text)
    assert len(loaded.sql("SELECT * FROM m")) == 40
    nothing_is_left(loaded, ["m"])
    assert [verdict for *_, verdict in loaded.sql("VERIFY")] == ["equal to batch"]


@pytest.mark.parametrize(
    "step", [*(pytest.param(step, marks=pytest.mark.long) for step in (1, 5)), 12]
)
def test_a_statement_is_cancelled_while_its_query_is_planned(loaded, monkeypatch, step):
    planner, steps = loaded.parts.engine.planner, []
    check = planner.check

    def cancelling():
        steps.append(1)
        if len(steps) == step:
            loaded.cancel()
        check()

    monkeypatch.setattr(planner, "check", cancelling)
    with pytest.raises(HeadraceError, match="cancelled"):
        loaded.sql(f"CREATE MATERIALIZED VIEW m AS {JOINED}")
    assert len(steps) == step
    nothing_is_left(loaded)
    loaded.sql(f"CREATE MATERIALIZED VIEW m AS {JOINED}")
    assert len(loaded.sql("SELECT * FROM m")) == 40


@pytest.mark.long
def test_a_view_is_as_it_was_where_its_replacement_is_cancelled(loaded):
    loaded.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
    text = f"CREATE OR REPLACE MATERIALIZED VIEW m AS {JOINED}"
    cancelled_at(loaded, text, lambda made: made.done >= 150)
    loaded.sql("DELETE FROM t WHERE v > 0")
    assert rows(loaded, "SELECT * FROM m") == [(0, 10)]
    nothing_is_left(loaded, ["m"])
    assert [verdict for *_, verdict in loaded.sql("VERIFY")] == ["equal to batch"]


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE SINK s WITH (connector = 'file', path = 's') AS {JOINED}",
        pytest.param(f"INSERT INTO out {JOINED}", marks=pytest.mark.long),
        pytest.param(f"SUBSCRIBE {JOINED}", marks=pytest.mark.long),
    ],
)
def test_a_sink_or_reader_whose_query_is_cancelled_leaves_no_view(loaded, text):
    loaded.sql("CREATE TABLE out (v INT, n BIGINT, s BIGINT) WITH (connector = 'kafka')")
    cancelled_at(loaded, text, lambda made: made.done >= 150)
    nothing_is_left(loaded)
    assert len(loaded.sql("SHOW SINKS")) == 0
    assert loaded.parts.reader.catalog.views_in_order() == ()
    assert rows(loaded, "SELECT count(*) FROM out") == [(0,)]


@pytest.mark.long
def test_what_computes_is_cancelled_and_the_session_goes_on(loaded, tmp_path):
    begun = tmp_path / "begun"

    def slow(value):
        begun.touch()
        time.sleep(0.1)
        return value

    loaded.register("slow", slow, returns="INT", deterministic=True)
    loaded.sql("CREATE VIEW slowly AS SELECT k, slow(v) AS v FROM t")
    for text in (
        "CREATE MATERIALIZED VIEW m AS SELECT k, v FROM slowly",
        "SELECT sum(v) AS s FROM slowly",
        "INSERT INTO t SELECT k + 1000, v FROM slowly",
        "DELETE FROM t WHERE slow(v) = 3",
    ):
        begun.unlink(missing_ok=True)
        started = time.monotonic()
        with cancelled_once(loaded, begun.exists):
            loaded.sql(text)
        assert time.monotonic() - started < 0.1 * ROWS / 2, text
        assert loaded.parts.reader.catalog.views_in_order() == ()
        assert rows(loaded, "SELECT count(*) FROM t") == [(ROWS,)]
    assert rows(loaded, "SELECT v FROM slowly WHERE k = 7") == [(7,)]


@pytest.mark.long
def test_verify_is_cancelled_before_its_job_and_within_it(loaded, tmp_path):
    begun = tmp_path / "begun"
    slowly = tmp_path / "slowly"

    def dozing(value):
        if slowly.exists():
            begun.touch()
            time.sleep(0.2)
        return value

    loaded.register("dozing", dozing, returns="INT", deterministic=True)
    loaded.sql("CREATE MATERIALIZED VIEW a AS SELECT v, count(*) AS n FROM t GROUP BY v")
    loaded.sql("CREATE MATERIALIZED VIEW b AS SELECT k, dozing(v) AS v FROM t")
    cancelled_at(loaded, "VERIFY", lambda made: made.what == "verifying 2 views")
    slowly.touch()
    with cancelled_once(loaded, begun.exists):
        loaded.sql("VERIFY")
    slowly.unlink()
    nothing_is_left(loaded, ["a", "b"])
    assert {verdict for *_, verdict in loaded.sql("VERIFY")} == {"equal to batch"}
    loaded.sql("INSERT INTO t VALUES (9000, 77)")
    assert rows(loaded, "SELECT * FROM b WHERE k = 9000") == [(9000, 77)]


@pytest.mark.long
@pytest.mark.parametrize("form", ["csv", pytest.param("jsonl", marks=pytest.mark.long)])
def test_copy_keeps_the_batches_it_has_and_goes_on_with_the_others(
    loaded, tmp_path, monkeypatch, form
):
    monkeypatch.setattr(files, "CHUNK_BYTES", 1)
    monkeypatch.setattr("headrace.io.formats.blocks.BLOCK_BYTES", 1 << 12)
    loaded.sql("CREATE TABLE u (k INT, v STRING)")
    loaded.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(k) AS s FROM u")
    file = tmp_path / f"many.{form}"
    many = 3000
    if form == "csv":
        pa_csv.write_csv(pa.table({"k": range(many), "v": ["x"] * many}), file)
    else:
        file.write_text("".join(f'{{"k": {k}, "v": "x"}}\n' for k in range(many)))
    copy = f"COPY u FROM '{file}'"
    calls = []
    seen = cancelled_at(loaded, copy, lambda made: calls.append(made) or len(calls) == 3)
    assert 0 < seen[-1].done < seen[-1].total
    # The session sees what it wrote, though the statement did not end.
    ((kept, total),) = rows(loaded, "SELECT n, s FROM m")
    assert 0 < kept < many
    assert total == sum(range(kept)), "the first rows, and no others"
    message = loaded.sql(copy).message
    assert message.startswith(f"{many - kept:,} rows copied, resumed at byte")
    assert rows(loaded, "SELECT n, s FROM m") == [(many, sum(range(many)))]
    assert [verdict for *_, verdict in loaded.sql("VERIFY")] == ["equal to batch"]


def test_a_row_that_says_cancelled_is_not_taken_for_a_cancelled_job(db):
    db.sql("""
        CREATE TABLE orders (id INT, state STRING);
        CREATE MATERIALIZED VIEW m AS SELECT id, CAST(state AS INT) AS n FROM orders;
        INSERT INTO orders VALUES (1, 'cancelled')
    """)
    with pytest.raises(HeadraceError, match="stopped") as stopped:
        db.sql("SELECT * FROM m")
    assert "'cancelled'" in stopped.value.detail
    with pytest.raises(HeadraceError) as failed:
        db.sql("SELECT CAST(state AS INT) + 1 AS n FROM orders")
    assert failed.value.code is Code.INVALID


@pytest.mark.parametrize("closes", [pytest.param("session", marks=pytest.mark.long), "database"])
def test_closing_ends_the_statement_that_runs(tmp_path, spark, closes):
    begun, found = threading.Event(), []

    def slowly(k):
        time.sleep(0.05)
        return k

    db = headrace.connect(tmp_path / "db", spark=spark, continuous=False)
    db.register("slowly", slowly, returns="INT", arguments=["INT"], deterministic=True)
    db.sql("CREATE TABLE t (k INT)")
    db.insert("t", [(k,) for k in range(2000)])
    session = db.session()

    def run():
        begun.set()
        try:
            session.sql("SELECT sum(slowly(k)) FROM t")
        except HeadraceError as error:
            found.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    time.sleep(0.5)
    (session if closes == "session" else db).close()
    thread.join(30)
    assert found == [Code.CANCELLED]
    if closes == "session":
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(2000,)]
    db.close()
