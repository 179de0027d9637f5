"""``EXPLAIN ROW name WHERE condition DEEP``: through all views below, to tables and streams."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_row_is_explained_through_all_views_with_the_key_of_each_row(db):
    db.sql("CREATE TABLE clients (id INT PRIMARY KEY, city STRING)")
    db.sql("CREATE STREAM sales (client INT, amount INT)")
    db.sql("INSERT INTO clients VALUES (1, 'Bern'), (2, 'Bern'), (3, 'Basel')")
    db.sql("INSERT INTO sales VALUES (1, 10), (2, 20), (3, 30), (1, 40)")
    db.sql(
        "CREATE MATERIALIZED VIEW spent AS SELECT client, sum(amount) AS s FROM sales GROUP BY 1"
    )
    db.sql(
        "CREATE MATERIALIZED VIEW located AS"
        " SELECT c.id, c.city, s.s FROM clients c JOIN spent s ON s.client = c.id"
    )
    db.sql("CREATE MATERIALIZED VIEW cities AS SELECT city, sum(s) AS s FROM located GROUP BY city")
    plain = [line for (line,) in db.sql("EXPLAIN ROW cities WHERE city = 'Bern'").fetchall()]
    at = plain.index("-- 2 of view located")
    assert plain[at + 1 :] == ["id = 1, city = 'Bern', s = 50", "id = 2, city = 'Bern', s = 20"]
    deep = [line for (line,) in db.sql("EXPLAIN ROW cities WHERE city = 'Bern' DEEP").fetchall()]
    assert deep[: len(plain)] == plain
    sections = [line for line in deep if line.startswith("==")]
    assert sections == [
        "== View located WHERE (`id` IN (1, 2))",
        "== View spent WHERE (`client` IN (1, 2))",
    ]
    located, spent = (deep[deep.index(each) :] for each in sections)
    at = located.index("-- 2 of table clients")
    assert located[at + 1 : at + 3] == ["id = 1, city = 'Bern'", "id = 2, city = 'Bern'"]
    at = spent.index("-- 3 of stream sales")
    assert spent[at + 1 :] == [
        "offset 0: client = 1, amount = 10",
        "offset 1: client = 2, amount = 20",
        "offset 3: client = 1, amount = 40",
    ]
    # Rows that agree in the columns that are read are listed one by one.
    db.sql(
        "CREATE MATERIALIZED VIEW counted AS SELECT city, count(*) AS n FROM clients GROUP BY city"
    )
    lines = [line for (line,) in db.sql("EXPLAIN ROW counted WHERE city = 'Bern' DEEP").fetchall()]
    at = lines.index("-- 2 of table clients")
    assert lines[at + 1 :] == ["id = 1, city = 'Bern'", "id = 2, city = 'Bern'"]
    # Of a view without a key, rows that agree are named once.
    db.sql(
        "CREATE MATERIALIZED VIEW sold AS"
        " SELECT s.client, c.city FROM sales s JOIN clients c ON c.id = s.client"
    )
    db.sql("CREATE MATERIALIZED VIEW best AS SELECT city, max(client) AS c FROM sold GROUP BY city")
    lines = [line for (line,) in db.sql("EXPLAIN ROW best WHERE city = 'Bern' DEEP").fetchall()]
    first, second = (
        "(`client` IN (1)) AND (`city` IN ('Bern'))",
        "(`client` IN (2)) AND (`city` IN ('Bern'))",
    )
    both = "(`client` IN (1, 2)) AND (`city` IN ('Bern'))"
    assert f"== View sold WHERE {both} AND (({first}) OR ({second}))" in lines
