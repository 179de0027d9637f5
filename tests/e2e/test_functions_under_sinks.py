"""Views that call Python functions, followed by sinks, when the functions change or are missing."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import headrace
from asked import rows
from headrace import Code, HeadraceError

pytestmark = pytest.mark.spark


def graded(above):
    def grade(amount):
        return "high" if amount > above else "low"

    return headrace.function("grade", grade, returns="STRING", deterministic=True)


DEFINITIONS = """
CREATE TABLE orders (id INT, amount INT, PRIMARY KEY (id));
INSERT INTO orders VALUES (1, 10), (2, 20), (3, 30);
CREATE MATERIALIZED VIEW grades AS SELECT id, grade(amount) AS grade FROM orders;
CREATE MATERIALIZED VIEW counts AS SELECT grade, count(*) AS n FROM grades GROUP BY grade;
CREATE TABLE by_key (grade STRING, n BIGINT, PRIMARY KEY (grade)) WITH (connector = 'kafka');
CREATE TABLE bag (id INT, grade STRING) WITH (connector = 'kafka');
CREATE SINK k INTO by_key FROM counts;
CREATE SINK b INTO bag FROM grades;
CREATE SINK f FROM grades WITH (connector = 'file', path = 'grades');
CREATE SINK own WITH (connector = 'file', path = 'own') AS
  SELECT grade(amount) AS grade, max(amount) AS most FROM orders GROUP BY grade(amount)
"""


def delivered(db, name):
    """What the files of a sink add up to."""
    total = Counter()
    for path in sorted((db.directory / "sinks" / name).iterdir()):
        for line in path.read_text().splitlines():
            change = json.loads(line)
            total[tuple(change["row"].values())] += change["weight"]
    assert set(total.values()) <= {0, 1}, total
    return sorted(row for row, weight in total.items() if weight)


def check(db, above):
    """Every sink holds what its view does, and that is what the function says."""
    db.flush()
    orders = rows(db, "SELECT id, amount FROM orders")
    assert rows(db, "SELECT * FROM grades") == [
        (id_, "high" if amount > above else "low") for id_, amount in orders
    ]
    assert rows(db, "SELECT * FROM bag") == rows(db, "SELECT * FROM grades")
    assert delivered(db, "grades") == rows(db, "SELECT * FROM grades")
    assert rows(db, "SELECT * FROM by_key") == rows(db, "SELECT * FROM counts")
    most = rows(db, "SELECT grade(amount) AS g, max(amount) FROM orders GROUP BY grade(amount)")
    assert delivered(db, "own") == most
    assert {(row[4], row[-1]) for row in db.sql("SHOW JOBS")} == {("running", None)}
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_sinks_and_subscribers_are_given_what_another_function_changes(db):
    db.register(graded(15))
    db.sql(DEFINITIONS)
    check(db, 15)
    followed = db.sql("SUBSCRIBE grades")
    assert len(followed.poll()) == 3
    db.sql("INSERT INTO orders VALUES (4, 16); FLUSH")
    db.register(graded(25), replace=True)
    changes = [(c.weight, c.row["id"], c.row["grade"]) for c in followed.poll()]
    assert sorted(changes) == [
        (-1, 2, "high"), (-1, 4, "high"), (1, 2, "low"), (1, 4, "high"), (1, 4, "low"),
    ]  # fmt: skip
    check(db, 25)
    db.sql("DELETE FROM orders WHERE id = 3; INSERT INTO orders VALUES (5, 26), (1, 40)")
    check(db, 25)


@pytest.mark.long
@pytest.mark.parametrize("history", [2, pytest.param(1000, marks=pytest.mark.long)])
def test_sinks_are_given_what_their_views_missed_while_they_waited(tmp_path, spark, history):
    settings = {"continuous": False, "partitions": 2, "history_epochs": history}
    with headrace.connect(tmp_path, spark=spark, functions=[graded(15)], **settings) as db:
        db.sql(DEFINITIONS)
        check(db, 15)
        # Left to be delivered: the position of the sinks is before this epoch.
        db.sql("INSERT INTO orders VALUES (4, 14), (2, 12)")
        db.parts.pump.settle()
    with headrace.connect(tmp_path, spark=spark, **settings) as db:
        for text in ("CREATE SINK g FROM grades WITH (connector = 'print')", "SUBSCRIBE counts"):
            with pytest.raises(HeadraceError, match="waits for a function") as refused:
                db.sql(text)
            assert refused.value.code is Code.UNAVAILABLE
        for n in range(10):
            db.sql(f"INSERT INTO orders VALUES ({n}, {10 + n}); FLUSH")
            db.compact()
        missed = db.last_epoch()
        assert {row[4] for row in db.sql("SHOW JOBS")} == {"stopped"}
    with headrace.connect(tmp_path, spark=spark, functions=[graded(15)], **settings) as db:
        check(db, 15)
        with pytest.raises(HeadraceError, match="no longer kept"):
            db.sql(f"SELECT * FROM grades AS OF EPOCH {missed}")
        with pytest.raises(HeadraceError, match="no longer kept"):
            db.sql(f"SELECT count(id) AS n FROM grades AS OF EPOCH {missed}")
        epoch = db.last_epoch()
        expected = rows(db, "SELECT * FROM grades")
        db.sql("DELETE FROM orders WHERE id > 4; FLUSH")
        assert rows(db, f"SELECT * FROM grades AS OF EPOCH {epoch}") == expected
        check(db, 15)


def test_a_plain_view_over_a_function_that_is_missing_says_which(tmp_path, spark):
    settings = {"continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, spark=spark, functions=[graded(15)], **settings) as db:
        db.sql("""
            CREATE TABLE orders (id INT, amount INT, PRIMARY KEY (id));
            INSERT INTO orders VALUES (1, 10), (2, 20);
            CREATE VIEW graded AS SELECT id, grade(amount) AS grade FROM orders;
            CREATE VIEW high AS SELECT id FROM graded WHERE grade = 'high'
        """)
        assert rows(db, "SELECT * FROM high") == [(2,)]
    with headrace.connect(tmp_path, spark=spark, **settings) as db:
        for text in (
            "SELECT * FROM graded",
            "SELECT count(*) AS n FROM high JOIN orders USING (id)",
            "SELECT * FROM high EMIT CHANGES",
            "SUBSCRIBE graded",
            "EXPLAIN SELECT * FROM high",
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM high",
            "CREATE SINK s WITH (connector = 'print') AS SELECT * FROM graded",
            "INSERT INTO orders SELECT id + 10, id FROM high",
            "CREATE VIEW over_it AS SELECT * FROM high",
        ):
            with pytest.raises(HeadraceError) as refused:
                db.sql(text)
            said = f"{refused.value.primary} {refused.value.detail}"
            assert '"grade"' in said, (text, said)
            assert refused.value.code in (Code.INVALID, Code.UNAVAILABLE), text
        assert [name for name, *_ in db.sql("SHOW VIEWS")] == ["graded", "high"]
        assert "grade(amount)" in str(db.sql("SHOW CREATE graded").fetchall())
        assert len(db.sql("DESCRIBE high")) == 1
        assert rows(db, "SELECT * FROM orders") == [(1, 10), (2, 20)]
        with pytest.raises(HeadraceError, match="high"):
            db.sql("DROP VIEW graded")
        db.sql("DROP VIEW high")
        db.register(graded(5), replace=True)
        assert rows(db, "SELECT * FROM graded") == [(1, "high"), (2, "high")]
    with headrace.connect(tmp_path, spark=spark, **settings) as db:
        db.sql("DROP VIEW graded; DROP FUNCTION grade")
        assert len(db.sql("SHOW VIEWS")) == 0
