"""CREATE INDEX: rows found by other columns than the key, beside the same rows by a scan."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.execution.serving import Contents
from sessions import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CITIES = ["oslo", "rome", "", "o'slo", None]
LOOKUPS = (
    "SELECT * FROM people WHERE city = 'oslo'",
    "SELECT id FROM people WHERE flag = true AND city = 'rome'",
    "SELECT id, x + 1 AS y FROM people WHERE city = 'rome' AND x > 2",
    "SELECT * FROM people WHERE city IN ('oslo', '', 'nowhere')",
    "SELECT * FROM people WHERE city = 'o''slo'",
    "SELECT * FROM people WHERE city = 'nowhere'",
    "SELECT city, n FROM counts WHERE city = 'oslo' AND n >= 1",
    "SELECT * FROM counts WHERE x = 3",
    "SELECT * FROM counts WHERE x = -1",
)


def change(db: headrace.Database, rng: random.Random) -> None:
    for _ in range(8):
        city, id_ = rng.choice(CITIES), rng.randrange(30)
        values = [id_, city, rng.random() < 0.5, rng.randrange(5)]
        db.sql("INSERT INTO people VALUES (?, ?, ?, ?)", values)
    db.sql("DELETE FROM people WHERE id = ?", [rng.randrange(30)])
    db.sql("UPDATE people SET city = 'oslo' WHERE id = ?", [rng.randrange(30)])


def answers(db: headrace.Database) -> list[Counter[str]]:
    return [Counter(map(repr, db.sql(query).fetchall())) for query in LOOKUPS]


@pytest.mark.long
def test_an_index_shows_what_a_scan_shows(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, used = random.Random(3), []
    by_key = Contents.by_key

    def counted(self: Contents, key: list[object]) -> object:
        used.append(self.layout.key)
        return by_key(self, key)

    monkeypatch.setattr(Contents, "by_key", counted)
    path = tmp_path / "db"
    with headrace.connect(path, spark=spark, partitions=PARTITIONS) as db:
        db.sql(
            "CREATE TABLE people (id INT PRIMARY KEY, city STRING, flag BOOLEAN, x INT);"
            "CREATE MATERIALIZED VIEW counts AS SELECT city, x, count(*) AS n FROM people"
            " GROUP BY city, x"
        )
        change(db, rng)
        epoch = db.flush()
        used.clear()
        before = answers(db)
        assert not used
        db.sql(
            "CREATE INDEX by_city ON people (City); CREATE INDEX ON people (flag, city);"
            "CREATE INDEX ON counts (city); CREATE INDEX IF NOT EXISTS by_x ON counts (x)"
        )
        assert answers(db) == before
        assert {("city",), ("flag", "city"), ("x",)} <= set(used)
        for _ in range(3):
            change(db, rng)
            found = answers(db)
            with monkeypatch.context() as patch:
                patch.setattr("headrace.lifecycle.states.reader.Reader.indexes", lambda *_: [])
                assert answers(db) == found
        past = db.sql(f"SELECT * FROM people WHERE city = 'oslo' AS OF EPOCH {epoch}").fetchall()
        assert Counter(map(repr, past)) == before[0]
        rows = {view: verdict for view, _, _, verdict in db.sql("VERIFY").fetchall()}
        assert rows["index by_city"] == rows["index by_x"] == "equal to batch"
    with headrace.connect(path, spark=spark, partitions=PARTITIONS) as db:
        assert answers(db) == found
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW counts AS SELECT city, x, count(*) AS n FROM people"
            " WHERE x > 1 GROUP BY city, x"
        )
        change(db, rng)
        used.clear()
        found = answers(db)
        assert ("x",) in used
        with monkeypatch.context() as patch:
            patch.setattr("headrace.lifecycle.states.reader.Reader.indexes", lambda *_: [])
            assert answers(db) == found
        explained = [line for (line,) in db.sql(f"EXPLAIN {LOOKUPS[2]}").fetchall()]
        assert explained[-1].endswith('by index "by_city"')
        listed = db.sql("SHOW INDEXES FROM people").fetchall()
        names = ("by_city", "people_flag_city_idx")
        assert listed == [(names[0], "people", "city"), (names[1], "people", "flag, city")]
        refused(db)
        db.sql("DROP INDEX by_x; DROP MATERIALIZED VIEW counts; DROP TABLE people")
        assert db.sql("SHOW INDEXES").fetchall() == []
        assert not list(db.parts.reader.catalog)


def refused(db: headrace.Database) -> None:
    db.sql("CREATE VIEW plain AS SELECT 1 AS x; CREATE TABLE days (d DATE, s STRING)")
    for sql, said in (
        ("CREATE INDEX by_city ON counts (city)", "exists already"),
        ("CREATE INDEX ON people (id)", "is the key"),
        ("CREATE INDEX ON people (town)", "does not exist"),
        ("CREATE INDEX ON people (city, CITY)", "given twice"),
        ("CREATE INDEX ON plain (x)", "not supported"),
        ("CREATE INDEX ON days (d)", "type DATE is not supported"),
        ("CREATE INDEX ON nothing (x)", "does not exist"),
        ("DROP INDEX by_town", "does not exist"),
        ("CREATE OR REPLACE MATERIALIZED VIEW counts AS SELECT city FROM people", "DROP INDEX"),
    ):
        with pytest.raises(HeadraceError) as raised:
            db.sql(sql)
        assert said in str(raised.value), raised.value
    assert "exists already" in repr(db.sql("CREATE INDEX IF NOT EXISTS by_city ON people (x)"))
    assert "does not exist" in repr(db.sql("DROP INDEX IF EXISTS by_town"))
    db.sql("DROP VIEW plain; DROP TABLE days")
