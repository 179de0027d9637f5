"""Debezium's envelopes: with and without a key, in order, and what is refused of them."""

from __future__ import annotations

import json

import pytest

from headrace import Code, HeadraceError

pytestmark = pytest.mark.spark


@pytest.fixture
def capture(db, tmp_path):
    count = iter(range(100))

    def copy(table, *envelopes):
        path = tmp_path / f"{next(count)}.json"
        path.write_text("\n".join(e if isinstance(e, str) else json.dumps(e) for e in envelopes))
        return db.sql(f"COPY {table} FROM '{path}' WITH (format = json)").message

    return copy


def rows(db, text):
    return sorted(db.sql(text).fetchall(), key=str)


def test_by_primary_key_the_last_change_wins_whatever_was_before(db, capture):
    db.sql("CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k)) WITH (format = 'debezium-json')")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, max(v) AS v FROM t")
    capture("t", {"op": "c", "after": {"k": 1, "v": "a"}}, {"op": "c", "after": {"k": 2, "v": "b"}})
    capture("t", {"op": "u", "before": None, "after": {"k": 1, "v": "z"}})
    assert rows(db, "SELECT * FROM t") == [(1, "z"), (2, "b")]
    capture(
        "t",
        {"op": "u", "before": {"k": 2, "v": "b"}, "after": {"k": 3, "v": "b"}},
        {"op": "d", "before": {"k": 1}, "after": None},
        {"op": "d", "before": {"k": 77}, "after": None},
        {"op": "u", "before": {"k": 5}, "after": {"k": None, "v": "x"}},
        {"op": "d", "before": {"v": "b"}},
    )
    assert rows(db, "SELECT * FROM t") == [(3, "b")]
    assert rows(db, "SELECT * FROM n") == [(1, "b")]
    assert [(line, column) for _, _, line, column, *_ in rows(db, "SHOW REJECTS FOR t")] == [
        (4, "k"),
        (5, "k"),
    ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_without_a_key_equal_rows_are_counted_and_one_is_taken_back(db, capture):
    db.sql("CREATE TABLE t (v INT, op STRING) WITH (value_format = 'debezium-json')")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS n FROM t GROUP BY v")
    capture(
        "t", *[{"op": op, "after": {"v": 1}} for op in "crr"], {"op": "c", "after": {"v": None}}
    )
    assert rows(db, "SELECT * FROM n") == [(1, 3), (None, 1)]
    message = capture(
        "t",
        {"op": "d", "before": {"v": 1}},
        {"op": "u", "before": {"v": 1}, "after": {"v": 2}},
        {"op": "u", "before": {"v": 2}, "after": {"v": 3}},
        {"op": "d", "before": {"v": None}},
        {"op": "d", "before": {"v": None}},
        {"op": "c", "after": {"v": "no number"}},
        {"op": "x"},
    )
    assert message == "4 rows copied, 3 rejected: see SHOW REJECTS"
    assert rows(db, "SELECT * FROM n") == [(1, 1), (3, 1)]
    assert rows(db, "SELECT op FROM t WHERE v = 3") == [("u",)]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_values_that_were_not_sent_and_truncates_in_files(db, capture):
    db.sql(
        "CREATE TABLE t (k INT, v STRING, n DECIMAL(4,4), twice AS k * 2, PRIMARY KEY (k))"
        " WITH (format = 'debezium-json')"
    )
    db.sql("CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(n) AS total FROM t")
    row = {"k": 1, "v": "long", "n": "BAg="}
    capture("t", {"op": "c", "after": row}, {"op": "c", "after": {**row, "k": 2, "n": "+/g="}})
    assert rows(db, "SELECT * FROM sums") == [(2, 0)]
    lost = {"k": 1, "v": "__debezium_unavailable_value", "n": None}
    message = capture(
        "t",
        {"op": "u", "before": None, "after": lost},
        {"op": "u", "before": {"k": 2}, "after": {**lost, "k": 3}},
        {"op": "d", "before": {"k": 1}, "after": None},
        "null",
        {"op": "u", "before": None, "after": lost},
    )
    assert message == "3 rows copied, 1 rejected: see SHOW REJECTS"
    assert rows(db, "SELECT * FROM t") == [(3, "long", None, 6)]
    capture("t", {"op": "t"}, {"op": "c", "after": {**row, "k": 9}})
    assert rows(db, "SELECT k, twice FROM t") == [(9, 18)]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


def test_the_digits_of_a_timestamp_are_the_unit_of_its_numbers(db, capture):
    db.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, ms TIMESTAMP(3), n TIMESTAMP_NTZ(3), us timestamp (6))"
        " WITH (format = 'debezium-json', 'debezium.time-precision-mode' = 'adaptive')"
    )
    db.sql(
        "CREATE TABLE u (k INT PRIMARY KEY, ms TIMESTAMP(3), plain TIMESTAMP)"
        " WITH (format = 'debezium-json')"
    )
    row = {"k": 1, "ms": 1_000, "n": 2_000, "us": 3_000_000}
    assert capture("t", {"op": "c", "after": row}) == "1 row copied"
    found = "SELECT unix_millis(ms), CAST(n AS STRING), unix_millis(us) FROM t"
    assert rows(db, found) == [(1_000, "1970-01-01 00:00:02", 3_000)]
    rejected = {"op": "c", "after": {"k": 2, "ms": 1_000, "plain": 1_000}}
    said = capture("u", {"op": "c", "after": {"k": 1, "ms": 1_000}}, rejected)
    assert said == "1 row copied, 1 rejected: see SHOW REJECTS"
    assert rows(db, "SELECT k, unix_millis(ms) FROM u") == [(1, 1_000)]


def test_how_envelopes_are_read_cannot_be_chosen(db, tmp_path):
    db.sql("CREATE TABLE t (k INT, PRIMARY KEY (k)) WITH (format = 'debezium-json')")
    path = tmp_path / "x.json"
    path.write_text('[{"op": "c", "after": {"k": 1}}]')
    for statement, code in [
        (f"COPY t FROM '{path}' WITH (format = csv)", Code.INVALID),
        (f"COPY t (k) FROM '{path}'", Code.UNSUPPORTED),
        (f"COPY t FROM '{path}'", Code.UNSUPPORTED),
        (f"COPY t FROM '{tmp_path / 'none.json'}'", Code.INVALID),
    ]:
        with pytest.raises(HeadraceError) as caught:
            db.sql(statement)
        assert caught.value.code is code
        assert caught.value.span is not None
    assert len(db.sql("SELECT * FROM t")) == 0
