"""Functions that cannot take a value: the same error in a view and in a SELECT."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.verifying.history import CanonicalHistory


@pytest.mark.long
def test_what_a_function_cannot_take_is_invalid_in_views_and_in_select(db):
    db.sql("CREATE TABLE t (s STRING, i INT); INSERT INTO t VALUES ('<a>1</a>', 0)")
    expected = {
        "sequence(1, 5, i)": "sequence failed on a value: Illegal sequence boundaries: 1 to 5 by 0",
        "map_from_arrays(array('z'), array(1, i))": "map_from_arrays failed on a value: The key",
        "s RLIKE (s || '(')": "a regular expression failed on a value: Unclosed group near index 9:"
        " <a>1</a>(",
        "s RLIKE '('": "'('",
        "format_string('%d', s)": "format_string failed on a value: d != STRING",
        "xpath_int(s, 'a/')": "xpath failed on a value: Invalid XPath 'a/': A location step",
    }
    for expression, said in expected.items():
        for statement in ("CREATE MATERIALIZED VIEW v AS ", ""):
            with pytest.raises(HeadraceError) as failed:
                db.sql(f"{statement}SELECT {expression} AS x FROM t")
            assert failed.value.code is Code.INVALID, str(failed.value)
            # Interpreted, as in a SELECT that needs no job, Spark names the parameter instead.
            if "RLIKE" not in expression or statement:
                assert said in failed.value.primary


def test_verify_says_of_each_view_whether_it_could_be_checked(db, monkeypatch):
    db.sql("""CREATE TABLE t (i INT); INSERT INTO t VALUES (1);
        CREATE MATERIALIZED VIEW good AS SELECT i FROM t;
        CREATE MATERIALIZED VIEW bad AS SELECT i + 1 AS j FROM t""")
    counted, asked = CanonicalHistory.counted, []

    def failing(self, views, *rest):
        asked.append([view.name for view in views])
        if "bad" in asked[-1]:
            raise HeadraceError(Code.INVALID, "division by zero")
        return counted(self, views, *rest)

    monkeypatch.setattr(CanonicalHistory, "counted", failing)
    assert db.sql("VERIFY").fetchall() == [
        ("good", 1, 0, "equal to batch"),
        ("bad", 0, 0, "could not be checked: division by zero"),
    ]
    assert asked == [["good", "bad"], ["good"], ["bad"]]
    assert ("materialized view", "bad") in db.relations()


@pytest.mark.long
def test_a_failing_query_names_a_row_its_values_and_the_place(db):
    db.sql("""
        CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, x STRING);
        CREATE TABLE u (id INT PRIMARY KEY, d INT);
        INSERT INTO t VALUES (1, 10, 2, '1'), (2, 5, 1, '2'), (3, 7, 0, 'three'), (4, 1, 1, '4');
        INSERT INTO u VALUES (1, 1), (4, 0), (9, 9)""")
    three = 'the row {"id":3,"a":7,"b":0,"x":"three"} of table "t".'
    expected = {
        "id,\n  a / b AS q FROM t": ("a / b", three),
        "t.id, 1 / d AS q FROM t JOIN u ON t.id = u.id": ("1 / d", 'the row {"id":4,"d":0} of'),
    }
    for query, (place, row) in expected.items():
        with pytest.raises(HeadraceError) as failed:
            db.sql(f"CREATE MATERIALIZED VIEW v AS SELECT {query}")
        span = failed.value.span
        assert span.text[span.start : span.end] == place
        assert f"It fails with {row}" in failed.value.detail
    db.sql("""
        DELETE FROM t WHERE id = 3;
        CREATE MATERIALIZED VIEW q AS SELECT id, a / b AS q FROM t;
        SELECT * FROM q;
        INSERT INTO t VALUES (5, 5, 5, '5'), (6, 6, 0, '6'), (1, 7, 7, '7'), (7, 7, 7, '7')""")
    with pytest.raises(HeadraceError) as failed:
        db.sql("SELECT * FROM q")
    six = '{"id":6,"a":6,"b":0,"x":"6"}'
    assert f'with the row {six} of table "t". The place is a / b (line 1,' in str(failed.value)
    ((relation, row, copies, error, _),) = db.sql("SHOW ERRORS FOR q").fetchall()
    assert (relation, row, copies) == ("t", six, None)
    assert six in error
