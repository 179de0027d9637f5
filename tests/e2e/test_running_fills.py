"""Fills of views as other sessions see them while they run."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import headrace
from asked import rows
from headrace.errors import Code, HeadraceError
from served import served
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 400
COUNTED = "SELECT v, count(*) AS n FROM t GROUP BY v"
LISTED = """
    SELECT table_schema, table_name, kind, state, rows_done, rows_total
    FROM information_schema.fills
"""


CREATED = f"CREATE MATERIALIZED VIEW m AS {COUNTED}"


class Filling:
    """A session that runs a statement on a thread of its own; ``seen`` is the latest progress."""

    def __init__(self, db: headrace.Database, text: str) -> None:
        self.session = db.session()
        self.seen: headrace.Progress | None = None
        self.at_part = threading.Event()
        self.goes_on = threading.Event()
        self.error: HeadraceError | None = None
        self._thread = threading.Thread(target=self._run, args=(text,), daemon=True)
        self._thread.start()

    def _run(self, text: str) -> None:
        try:
            self.session.sql(text, progress=self._report)
        except HeadraceError as error:
            self.error = error

    def _report(self, made: headrace.Progress) -> None:
        self.seen = made
        if made.done >= 100:
            self.at_part.set()
            self.goes_on.wait(60)

    def wait_for_part(self) -> None:
        until(lambda: self.at_part.is_set() or self.error is not None)
        assert self.error is None

    def end(self) -> HeadraceError | None:
        self._thread.join()
        return self.error


def paused(db: headrace.Database, text: str) -> Filling:
    """Fill a view until a part of it has been read, and pause it there."""
    filling = Filling(db, text)
    filling.wait_for_part()
    asked = db.sql("PAUSE FILL OF m").message  # type: ignore[union-attr]
    assert asked == "the fill of m pauses after the part that it reads"
    assert [state for *_, state, _, _ in rows(db, LISTED)] == ["pausing"]
    filling.goes_on.set()
    until(lambda: [state for *_, state, _, _ in rows(db, LISTED)] == ["paused"])
    return filling


def nothing_is_left(db: headrace.Database) -> None:
    """No view exists, and only what the ledger names is on disk."""
    assert ("materialized view", "m") not in db.relations()
    known = db.parts.ledger.files.known().packs
    assert {path.name for path in (db.directory / "runs").iterdir()} <= known
    assert not list((db.directory / "attempts").iterdir())


@pytest.fixture
def loaded(tmp_path: Path, spark: SparkSession) -> Iterator[headrace.Database]:
    """A table of some rows; views are filled in parts of 50 rows."""
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, partitions=2, fill_rows=50
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.insert("t", [(k, k % 40) for k in range(ROWS)])
        yield db


def test_a_running_fill_is_listed_with_its_progress_until_it_ends(
    loaded: headrace.Database,
) -> None:
    seen: list[list[tuple[object, ...]]] = []
    with loaded.session() as session, loaded.session() as other:

        def look(made: headrace.Progress) -> None:
            if made.unit:
                seen.append(rows(other, LISTED))

        session.sql(f"CREATE MATERIALIZED VIEW m AS {COUNTED}", progress=look)
        first = seen[0]
        assert first == [("default", "m", "view", "running", 0, ROWS)]
        assert {found[4] for (found,) in seen} == {*range(0, ROWS + 1, 50)}
        assert rows(other, LISTED) == []

        seen.clear()
        held = f"CREATE OR REPLACE MATERIALIZED VIEW m WITH (auto_swap = false) AS {COUNTED}"
        session.sql(held, progress=look)
        assert {found[1:3] for (found,) in seen} == {("m", "candidate")}
        seen.clear()
        session.sql("CREATE INDEX i ON t (v)", progress=look)
        assert {found[1:3] for (found,) in seen} == {("i", "index")}


def test_while_a_fill_is_paused_epochs_go_on_and_then_it_reads_what_changed(
    loaded: headrace.Database,
) -> None:
    filling = paused(loaded, CREATED)
    assert rows(loaded, LISTED) == [("default", "m", "view", "paused", 100, ROWS)]
    until(lambda: filling.seen is not None and not filling.seen.unit)
    assert filling.seen == headrace.Progress(
        "filling m is paused; RESUME FILL OF m continues it", 0, None, ""
    )
    assert loaded.sql("PAUSE FILL OF m").message == "the fill of m is paused"  # type: ignore[union-attr]
    before = loaded.last_epoch()
    loaded.sql("DELETE FROM t WHERE k < 200")
    loaded.insert("t", [(k, 41) for k in range(1_000, 1_300)])
    loaded.sql("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM t")
    assert rows(loaded, "SELECT n FROM other") == [(500,)]
    loaded.compact()
    assert loaded.last_epoch() >= before + 2
    assert rows(loaded, LISTED) == [("default", "m", "view", "paused", 100, ROWS)]
    assert loaded.sql("RESUME FILL OF m").message == "resumed the fill of m"  # type: ignore[union-attr]
    assert filling.end() is None
    assert rows(loaded, "SELECT n FROM m WHERE v = 41") == [(300,)]
    assert {verdict for *_, verdict in loaded.sql("VERIFY").fetchall()} == {"equal to batch"}  # type: ignore[union-attr]
    with pytest.raises(HeadraceError, match='no fill of view or index "m" is running'):
        loaded.sql("RESUME FILL OF m")


def test_a_paused_fill_that_is_cancelled_leaves_nothing(loaded: headrace.Database) -> None:
    filling = paused(loaded, CREATED)
    assert filling.session.cancel()
    error = filling.end()
    assert error is not None
    assert error.code is Code.CANCELLED
    nothing_is_left(loaded)
    assert rows(loaded, LISTED) == []
    loaded.sql(CREATED)
    assert len(rows(loaded, "SELECT * FROM m")) == 40


def test_a_database_that_is_closed_ends_a_paused_fill(loaded: headrace.Database) -> None:
    filling = paused(loaded, CREATED)
    directory, spark = loaded.directory, loaded.parts.engine.source
    assert spark is not None
    loaded.close()
    error = filling.end()
    assert error is not None
    assert error.code is Code.CANCELLED
    with headrace.connect(directory, continuous=False) as db:
        nothing_is_left(db)
        assert rows(db, "SELECT count(*) FROM t") == [(ROWS,)]


def test_a_candidate_waits_beside_its_view_which_serves(loaded: headrace.Database) -> None:
    loaded.sql(f"CREATE MATERIALIZED VIEW m AS {COUNTED}")
    text = "ALTER MATERIALIZED VIEW m WITH (auto_swap = false) AS SELECT v, max(k) AS n FROM t"
    filling = paused(loaded, f"{text} GROUP BY v")
    assert rows(loaded, "SELECT n FROM m WHERE v = 1") == [(10,)]
    loaded.sql("RESUME FILL OF VIEW m")
    assert filling.end() is None
    assert rows(loaded, "SELECT state FROM information_schema.candidates") == [("waits",)]


def test_the_fill_of_a_recursive_view_cannot_be_paused(loaded: headrace.Database) -> None:
    filling = Filling(
        loaded,
        """
        CREATE MATERIALIZED VIEW m AS WITH RECURSIVE r (k, v) AS (
          SELECT k, v FROM t WHERE k = 1
          UNION ALL SELECT t.k, t.v FROM t JOIN r ON t.v = r.k AND t.k > r.k
        ) SELECT k, v FROM r
        """,
    )
    filling.wait_for_part()
    with pytest.raises(HeadraceError, match="is not supported") as caught:
        loaded.sql("PAUSE FILL OF m")
    assert caught.value.code is Code.UNSUPPORTED
    filling.goes_on.set()
    assert filling.end() is None


@pytest.mark.long
def test_a_fill_is_paused_and_resumed_over_http(loaded: headrace.Database) -> None:
    def slowly(value: int) -> int:
        time.sleep(0.02)
        return value

    loaded.register("slowly", slowly, returns="INT", deterministic=True)
    text = "CREATE MATERIALIZED VIEW m AS SELECT slowly(v) AS v, count(*) AS n FROM t GROUP BY 1"
    seen: list[headrace.Progress] = []
    with served(loaded) as server, headrace.connect(server.server.url) as remote:

        def fill() -> None:
            with remote.session() as session:
                session.sql(text, progress=seen.append)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        until(lambda: bool(seen))
        remote.sql("PAUSE FILL OF m")
        paused = "filling m is paused; RESUME FILL OF m continues it"
        until(lambda: seen[-1].what == paused)
        (running,) = server.client.ask("GET", "/v1/statements").json["statements"]
        assert (running["sql"], running["progress"]["what"]) == (text, paused)
        ((state, done),) = remote.sql(
            "SELECT state, rows_done FROM information_schema.fills"
        ).fetchall()
        assert state == "paused"
        assert done < ROWS
        remote.sql("RESUME FILL OF m")
        thread.join()
        assert sorted(remote.sql("SELECT v, n FROM m").fetchall()) == [(v, 10) for v in range(40)]
    assert seen[-1].done == ROWS
