"""What is written is what was given, value by value, or nothing is written."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from headrace.errors import Code, HeadraceError

BEYOND = 9007199254740993
"""2^53 + 1: an integer that no DOUBLE is."""
LONG = Decimal("1234567890123456789012345678.0123456789")


def refused(db, text):
    with pytest.raises(HeadraceError) as error:
        db.sql(text)
    assert error.value.code is Code.INVALID
    span = error.value.span
    return error.value.primary, span.text[span.start : span.end]


def test_no_value_of_an_insert_changes_with_those_beside_it(db):
    db.sql("CREATE TABLE d (id INT, x DECIMAL(38,10), l BIGINT)")
    db.sql(f"INSERT INTO d VALUES (6, 1, {BEYOND}), (7, 2, 1.0D), (8, {LONG}, -1), (9, 1e-3, 2)")
    db.sql(f"INSERT INTO d VALUES (1 + 0, abs({LONG}), {BEYOND} + 0), (2, 1e-3 + 0, 1D + 0)")
    db.insert("d", [(3, LONG, BEYOND), {"id": 4.0, "x": 0.001, "l": 1.0}])
    db.insert("d", pd.DataFrame({"id": [5.0], "x": pd.Series([LONG], dtype=object)}))
    assert sorted(db.sql("SELECT * FROM d"), key=str) == [
        (1, LONG, BEYOND),
        (2, Decimal("0.0010000000"), 1),
        (3, LONG, BEYOND),
        (4, Decimal("0.0010000000"), 1),
        (5, LONG, None),
        (6, Decimal("1.0000000000"), BEYOND),
        (7, Decimal("2.0000000000"), 1),
        (8, LONG, -1),
        (9, Decimal("0.0010000000"), 2),
    ]


def test_a_value_that_does_not_fit_is_an_error_that_names_row_column_and_value(db, tmp_path):
    db.sql("CREATE TABLE t (i INT, b BOOLEAN, d DECIMAL(9,2), day DATE, s STRING)")
    assert refused(db, "INSERT INTO t (i) VALUES (1.0), (1.7)") == (
        'column "i" in row 2: 1.7 does not fit INT',
        "1.7",
    )
    assert refused(db, "INSERT INTO t (i, s) VALUES ('5', 'a'), ('6', 7)") == (
        'column "s" in row 2: 7 is not a STRING',
        "7",
    )
    assert refused(db, "INSERT INTO t (b) VALUES ('yes')")[0].endswith('"yes" is not a BOOLEAN')
    assert refused(db, "INSERT INTO t (d) SELECT 9.999")[0] == (
        'column "d" in row 1: 9.999 does not fit DECIMAL(9,2)'
    )
    assert refused(db, "INSERT INTO t (i) SELECT '5'")[0].endswith('"5" is not an INT')
    assert refused(db, "INSERT INTO t (i) SELECT x FROM VALUES (1), (2.5) AS v(x)")[0] == (
        'column "i" in row 2: 2.5 does not fit INT'
    )
    assert refused(db, "INSERT INTO t (i, day) VALUES (1, DATE '2026-01-02'), (2, now())")[
        0
    ].startswith('column "day" in row 2')
    for rows in (
        [{"i": 1}, {"i": 1.7}],
        pa.table({"i": [1, 1.7]}),
        pd.DataFrame({"i": [1.0, 1.7]}),
        [(1, None, None, None, None), (1.7, None, None, None, None)],
    ):
        with pytest.raises(HeadraceError, match=r'column "i" in row 2: 1\.7 does not fit INT'):
            db.insert("t", rows)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
    file = tmp_path / "t.csv"
    file.write_text("i,d\n1.0,9.99\n1.7,1\n2,9.999\n")
    copied = db.sql(f"COPY t (i, d) FROM '{file}'").message
    assert copied.startswith("1 row copied, 2 rejected")
    db.sql("INSERT INTO t (i, b, d, day, s) VALUES ('5', 'true', '1.5', '2026-01-02', 'x')")
    db.sql("INSERT INTO t (i, d, day) SELECT 6.0D, 9.5D, TIMESTAMP '2026-01-02 00:00:00'")
    day = dt.date(2026, 1, 2)
    assert sorted(db.sql("SELECT * FROM t")) == [
        (1, None, Decimal("9.99"), None, None),
        (5, True, Decimal("1.50"), day, "x"),
        (6, None, Decimal("9.50"), day, None),
    ]


@pytest.mark.long
def test_an_update_writes_a_value_exactly_or_nothing(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, i INT, d DECIMAL(9,2), b BOOLEAN)")
    db.sql("INSERT INTO t VALUES (1, 10, 1.5, true), (2, 20, 2.5, false)")
    assert refused(db, "UPDATE t SET i = i / 4")[0] == 'column "i": 2.5 does not fit INT'
    assert refused(db, "UPDATE t SET i = '1.7'") == (
        'column "i": "1.7" does not fit INT',
        "'1.7'",
    )
    assert refused(db, "UPDATE t SET d = d * 1.001")[0].startswith('column "d": 1.5015')
    assert refused(db, "UPDATE t SET b = 'yes'")[0] == 'column "b": "yes" is not a BOOLEAN'
    db.sql("UPDATE t SET i = i / 5, d = '7.5', b = NULL WHERE k = 1")
    assert sorted(db.sql("SELECT * FROM t")) == [
        (1, 2, Decimal("7.50"), None),
        (2, 20, Decimal("2.50"), False),
    ]


def test_expressions_of_values_are_evaluated_once_each_and_by_themselves(db):
    db.sql("CREATE TABLE t (id INT, x STRING, at TIMESTAMP, xs ARRAY<INT>)")
    db.sql("INSERT INTO t VALUES (1, uuid(), now(), array(1, 2)), (2, uuid(), now(), array())")
    found = db.sql("SELECT count(DISTINCT x), count(DISTINCT at) FROM t").fetchall()
    assert found == [(2, 1)]
    many = ", ".join(f"({i}, rand() || '', now())" for i in range(100, 103))
    many += "".join(f", ({i}, 'x', now())" for i in range(103, 1000))
    db.sql(f"INSERT INTO t (id, x, at) VALUES {many}")
    found = db.sql("SELECT count(DISTINCT x), count(DISTINCT at) FROM t WHERE id >= 100")
    assert found.fetchall() == [(4, 1)]
    db.sql("DELETE FROM t WHERE id >= 100")
    db.sql("INSERT INTO t (id) VALUES ((SELECT max(id) FROM t) + 1), 4")
    assert sorted(db.sql("SELECT id FROM t")) == [(1,), (2,), (3,), (4,)]
    assert refused(db, "INSERT INTO t (id) VALUES (1), (nope)")[1] == "nope"
    assert refused(db, "INSERT INTO t (id) VALUES (1), (explode(array(1, 2)))")[0].endswith(
        "makes 2 rows"
    )
    assert refused(db, "INSERT INTO t (id, x) VALUES (1, 'a'), (2)") == (
        "2 columns are to be filled, but row 2 has 1 value",
        "2",
    )


def test_an_update_that_would_take_the_key_of_another_row_is_a_conflict(db):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x STRING)")
    db.sql("CREATE TABLE d (k DECIMAL(9,2), at DATE, x INT, PRIMARY KEY (k, at))")
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    db.sql("INSERT INTO d VALUES (1.5, DATE '2026-01-01', 1), (2.5, DATE '2026-01-01', 2)")
    for text, shown in (
        ("UPDATE t SET id = 2 WHERE id = 1", 'table "t" has another row with id = 2'),
        ("UPDATE t SET id = id + 1 WHERE id < 3", 'table "t" has another row with id = 3'),
        ("UPDATE d SET k = '2.5' WHERE x = 1", "k = 2.50, at = 2026-01-01"),
    ):
        with pytest.raises(HeadraceError) as error:
            db.sql(text)
        assert error.value.code is Code.CONFLICT
        assert shown in error.value.primary
    db.sql("UPDATE t SET id = 4 - id WHERE id <> 2")
    db.sql("UPDATE t SET id = id, x = 'B' WHERE id = 2")
    assert sorted(db.sql("SELECT * FROM t")) == [(1, "c"), (2, "B"), (3, "a")]
    assert sorted(db.sql("SELECT x FROM d")) == [(1,), (2,)]


def test_what_becomes_of_a_key_that_is_there_is_said_by_the_insert(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, n INT, x STRING)")
    db.sql("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    db.sql("INSERT INTO t VALUES (2, 21, 'B')")
    said = db.sql(
        "INSERT INTO t VALUES (2, 0, ''), (3, 30, 'c'), (3, 0, '') ON CONFLICT DO NOTHING"
    )
    assert said.message == "1 row inserted"
    assert db.sql("INSERT OR IGNORE INTO t (k) VALUES (3)").message == "0 rows inserted"
    db.sql("INSERT OR REPLACE INTO t (k, n) VALUES (1, 11)")
    assert sorted(db.sql("SELECT * FROM t")) == [(1, 11, None), (2, 21, "B"), (3, 30, "c")]
    said = db.sql(
        "INSERT INTO t VALUES (1, 1, 'q'), (3, 3, 'r'), (4, 4, 's') "
        "ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n, x = concat(excluded.x, '!') "
        "WHERE excluded.n < 3"
    )
    assert said.message == "2 rows inserted"
    db.sql("INSERT INTO t SELECT k, 0, 'z' FROM t WHERE k > 2 ON CONFLICT (k) DO UPDATE SET n = -1")
    assert sorted(db.sql("SELECT * FROM t")) == [
        (1, 12, "q!"),
        (2, 21, "B"),
        (3, -1, "c"),
        (4, -1, "s"),
    ]
    with pytest.raises(HeadraceError, match=r"change a row of table .t. twice") as twice:
        db.sql("INSERT INTO t (k) VALUES (1), (1) ON CONFLICT DO UPDATE SET n = 0")
    assert twice.value.code is Code.CONFLICT
    assert refused(db, "INSERT INTO t (k) VALUES (1) ON CONFLICT DO UPDATE SET n = n / 5") == (
        'column "n": 2.4 does not fit INT',
        "n / 5",
    )
    assert (
        refused(db, "INSERT INTO t (k) VALUES (1) ON CONFLICT DO UPDATE SET n = nope")[1] == "nope"
    )
    assert refused(db, "INSERT INTO t (k) VALUES (1) ON CONFLICT (n) DO NOTHING")[0].endswith(
        "does not name the primary key"
    )
    db.sql("CREATE TABLE keyless (k INT)")
    assert (
        "no PRIMARY KEY" in refused(db, "INSERT INTO keyless VALUES (1) ON CONFLICT DO NOTHING")[0]
    )
    assert "no PRIMARY KEY" in refused(db, "INSERT OR REPLACE INTO keyless VALUES (1)")[0]


def test_parameters_are_values_of_their_types_in_every_statement_that_takes_them(db):
    nasty = "it's \\ ?:x -- '; DROP TABLE t"
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, s STRING, d DECIMAL(9,2), at TIMESTAMP, b BINARY)")
    db.sql("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (1, nasty, Decimal("-9.99"), at, b"\0'"))
    db.sql("INSERT INTO t (k, s) VALUES (:k, :s)", {"k": -2, "s": "b"})
    assert db.sql("SELECT * FROM t WHERE k = ?", [1]).fetchall() == [
        (1, nasty, Decimal("-9.99"), at, b"\0'")
    ]
    assert db.sql(
        "SELECT k FROM t WHERE s = :s AND at >= :at", {"s": nasty, "at": at}
    ).fetchall() == [(1,)]
    db.sql("UPDATE t SET s = ?, d = ? WHERE k = ?", ["c", 1.5, -2])
    assert db.sql("SELECT s, d FROM t WHERE k = -2").fetchall() == [("c", Decimal("1.50"))]
    with db.subscribe("SELECT s FROM t WHERE k < ?", [0]) as changes:
        assert [change.row for change in changes.poll()] == [{"s": "c"}]
    db.sql("DELETE FROM t WHERE s = ?", [nasty])
    assert db.sql("SELECT k FROM t").fetchall() == [(-2,)]
    with pytest.raises(HeadraceError) as error:
        db.sql("SELECT nope, ? FROM t", [1])
    assert error.value.span.text == "SELECT nope, ? FROM t"
    assert error.value.span.start == 7
    for text in ("SELECT k FROM t WHERE k = ?", "DELETE FROM t WHERE k = :k"):
        assert refused(db, text) == ("a parameter has no value", text.split()[-1])
    with pytest.raises(HeadraceError, match=r"1\.7 does not fit INT") as error:
        db.sql("INSERT INTO t (k) VALUES (?)", [1.7])
    assert error.value.span.text == "INSERT INTO t (k) VALUES (?)"


@pytest.mark.long
def test_a_default_stands_for_what_an_insert_leaves_out(db, tmp_path):
    db.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, n INT DEFAULT 7 NOT NULL, s STRING DEFAULT 'a, b' "
        "COMMENT 'x', id STRING DEFAULT uuid(), d DECIMAL(9,2) DEFAULT (1 + 0.5))"
    )
    db.sql("INSERT INTO t (k) VALUES (1), (2)")
    db.sql("INSERT INTO t VALUES (3, DEFAULT, NULL, DEFAULT, DEFAULT), (4, 1, 'q', 'q', DEFAULT)")
    db.sql("INSERT INTO t (k, s) SELECT 5, 'e'")
    db.insert("t", [{"k": 6}])
    file = tmp_path / "t.csv"
    file.write_text("k\n8\n")
    db.sql(f"COPY t (k) FROM '{file}'")
    half = Decimal("1.50")
    assert sorted(db.sql("SELECT k, n, s, d FROM t")) == [
        (1, 7, "a, b", half),
        (2, 7, "a, b", half),
        (3, 7, None, half),
        (4, 1, "q", half),
        (5, 7, "e", half),
        (6, 7, "a, b", half),
        (8, 7, "a, b", half),
    ]
    assert db.sql("SELECT count(DISTINCT id) FROM t").fetchall() == [(7,)]
    db.sql("UPDATE t SET n = DEFAULT, d = DEFAULT, s = DEFAULT WHERE k = 4")
    assert db.sql("SELECT n, s, d FROM t WHERE k = 4").fetchall() == [(7, "a, b", half)]
    notes = {row[0]: row[2] for row in db.sql("DESCRIBE t")}
    assert (notes["n"], notes["id"]) == ("default: 7", "default: uuid()")
    assert "DEFAULT 'a, b'" in db.sql("SHOW CREATE t").fetchall()[0][1]
    with pytest.raises(HeadraceError, match="left out in row 1 only"):
        db.insert("t", [{"k": 9}, {"k": 10, "n": 1}])
    for text, reason in (
        ("x INT DEFAULT 1.7", "1.7 does not fit INT"),
        ("x INT DEFAULT upper('a')", "is not an INT"),
        ("x INT DEFAULT (SELECT max(k) FROM t)", "a default that reads relations"),
        ("x INT DEFAULT k", "does not exist"),
    ):
        with pytest.raises(HeadraceError, match=re.escape(reason)):
            db.sql(f"CREATE TABLE u (k INT, {text})")
