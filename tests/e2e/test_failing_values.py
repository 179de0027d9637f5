"""Functions that cannot take a value: the same error in a view and in a SELECT."""

from __future__ import annotations

import pytest

from headrace.engine.queries import Queries
from headrace.errors import Code, HeadraceError


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
    counted, asked = Queries.counted, []

    def failing(self, views, *rest):
        asked.append([view.name for view in views])
        if "bad" in asked[-1]:
            raise HeadraceError(Code.INVALID, "division by zero")
        return counted(self, views, *rest)

    monkeypatch.setattr(Queries, "counted", failing)
    assert db.sql("VERIFY").fetchall() == [
        ("good", 1, 0, "equal to batch"),
        ("bad", 0, 0, "could not be checked: division by zero"),
    ]
    assert asked == [["good", "bad"], ["good"], ["bad"]]
    assert ("materialized view", "bad") in db.relations()
