"""Joins that read the stored rows of a table or a view instead of a copy."""

from __future__ import annotations

import re

import pytest

from headrace.planning.circuit import Join, own_arrangements, shared
from histories import History
from length import choose, some, thorough

pytestmark = pytest.mark.spark


def _read(run, view):
    """Return the names of the relations whose rows the view's joins read, one for each side."""
    catalog, engine = run.db.parts.reader.catalog, run.db.parts.engine
    joins = [n for n in engine.circuit(catalog.resolve(view)).stateful() if isinstance(n, Join)]
    return [catalog.by_id[each.relation].name for n in joins for each in shared(n).values()]


def _stored(run, view):
    """Return the arrangements that the ledger has of a view, and their bytes."""
    ledger = run.db.parts.ledger
    id_ = run.db.parts.reader.catalog.resolve(view).id
    own = [a.id for a in ledger.spines.arrangements() if a.owner == id_]
    return {a: sum(r.file.bytes for r in runs) for a, runs in ledger.spines.of(own).items()}


RELATIONS = (
    ("users", "id INT, g INT, name STRING, x BIGINT", "id"),
    ("pairs", "a INT, b INT, w INT", "a, b"),
    ("other", "id INT, g INT", "id"),
    ("bag", "g INT, y INT", ""),
)

VIEWS = {
    "inner_join": ("SELECT bag.y, users.name FROM bag JOIN users ON bag.g = users.id", ["users"]),
    "renamed": (
        "SELECT bag.y, u.n FROM bag JOIN (SELECT name AS n, id AS k FROM users) u ON bag.g = u.k",
        ["users"],
    ),
    "two_keys": (
        "SELECT bag.g, p.w FROM bag JOIN pairs p ON bag.y = p.b AND bag.g = p.a",
        ["bag", "pairs"],
    ),
    "residual": (
        "SELECT bag.y, users.x FROM bag JOIN users ON bag.g = users.id AND bag.y < users.x",
        ["users"],
    ),
    "both": ("SELECT u.name, o.g FROM users u JOIN other o ON u.id = o.id", ["users", "other"]),
    "itself": ("SELECT u.name, v.g FROM users u JOIN users v ON u.g = v.id", ["users"]),
    "chain": (
        "SELECT b.y, u.name, o.g FROM bag b JOIN users u ON b.g = u.id JOIN other o ON u.g = o.id",
        ["users", "other"],
    ),
    "left_join": (
        "SELECT bag.y, u.name FROM bag LEFT JOIN users u ON bag.g = u.id",
        ["users", "users"],
    ),
    "kept_side": ("SELECT u.name, bag.y FROM users u LEFT JOIN bag ON bag.g = u.id", ["users"]),
    "full_join": (
        "SELECT u.id AS i, o.id AS j, o.g FROM users u FULL JOIN other o ON u.id = o.id",
        ["users", "other", "other", "users"],
    ),
    "left_residual": (
        "SELECT bag.y, u.name FROM bag LEFT JOIN users u ON bag.g = u.id AND u.x > bag.y",
        ["users"],
    ),
    "semi": (
        "SELECT y FROM bag WHERE EXISTS (SELECT 1 FROM users WHERE users.id = bag.g)",
        ["users"],
    ),
    "anti": (
        "SELECT y FROM bag WHERE NOT EXISTS (SELECT 1 FROM users WHERE id = bag.g)",
        ["users"],
    ),
    "anti_of_keyed": (
        "SELECT name FROM users u WHERE NOT EXISTS (SELECT 1 FROM bag WHERE g = u.id)",
        ["users"],
    ),
    "flagged": (
        "SELECT y FROM bag WHERE y > 3 OR EXISTS (SELECT 1 FROM users WHERE users.id = bag.g)",
        ["users"],
    ),
    # What is more than a choice of columns has rows of its own.
    "filtered": ("SELECT bag.y FROM bag JOIN users ON bag.g = users.id WHERE users.x > 4", []),
    "computed": (
        "SELECT bag.y, u.n FROM bag JOIN (SELECT id, upper(name) AS n FROM users) u ON bag.g = u.id",
        [],
    ),
    "part_of_the_key": ("SELECT bag.y, p.w FROM bag JOIN pairs p ON bag.g = p.a", []),
    "more_than_the_key": (
        "SELECT y FROM bag JOIN users ON bag.g = users.id AND bag.y = users.g",
        ["bag"],
    ),
}


SHORT_VIEWS = """renamed two_keys residual itself full_join left_residual anti_of_keyed flagged filtered
    more_than_the_key"""


@pytest.mark.long
def test_joins_read_the_rows_of_tables_by_primary_key(oracle):
    run = oracle(rows_per_change=60, fill_rows=6)
    for name, columns, key in RELATIONS:
        run.table(name, columns, key)
    names = [name for name, *_ in RELATIONS]
    history = History(run, 31, domain=9)
    for name, (query, read) in list(some(VIEWS, SHORT_VIEWS).items())[::2]:
        run.view(name, query)
        assert sorted(_read(run, name)) == sorted(read), name
    history.epochs(names, (40,))
    for name, (query, read) in list(some(VIEWS, SHORT_VIEWS).items())[1::2]:
        run.view(name, query)
        assert sorted(_read(run, name)) == sorted(read), name
    history.epochs(names, choose((30,), (1, 30)))
    run.reopen()
    run.update("users", {"id": "id + 100", "x": "x + 1"}, "g > 2")
    run.db.compact()
    if thorough():
        history.epochs(names, (10,))
    run.truncate("users")
    history.epochs(names, (20,))
    run.finish()


@pytest.mark.long
def test_joins_read_the_rows_of_views_by_their_keys(oracle):
    run = oracle(rows_per_change=80, fill_rows=5)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.table("b", "g INT, y INT")
    run.stream("s", "g INT, z INT")
    history = History(run, 32, domain=7)
    history.epochs(["t", "b", "s"], (40,))
    run.view("groups", "SELECT g, count(*) AS n, sum(x) AS x FROM t GROUP BY g")
    run.view("total", "SELECT count(*) AS n FROM t")
    run.view("bag_by_g", "SELECT b.g, s.z, b.y FROM b JOIN s ON b.g = s.g")
    views = {
        "named": ("SELECT b.y, groups.n FROM b JOIN groups ON b.g = groups.g", ["groups"]),
        "beside": (
            "SELECT b.y, groups.n FROM b LEFT JOIN groups ON b.g = groups.g",
            ["groups"] * 2,
        ),
        "of_groups": ("SELECT groups.g, b.y FROM groups LEFT JOIN b ON b.g = groups.g", ["groups"]),
        "share": ("SELECT b.y, total.n FROM b, total", ["total"]),
        "not_unique": ("SELECT t.x, v.z FROM t JOIN bag_by_g v ON t.g = v.g", ["bag_by_g"]),
        "not_unique_left": (
            "SELECT t.x, v.z FROM t LEFT JOIN bag_by_g v ON t.g = v.g",
            ["bag_by_g"],
        ),
        "not_unique_semi": ("SELECT x FROM t WHERE g IN (SELECT g FROM bag_by_g)", []),
        "diamond": ("SELECT t.id, groups.n FROM t JOIN groups ON t.g = groups.g", ["groups"]),
    }
    for name, (query, read) in views.items():
        run.view(name, query)
        assert _read(run, name) == read, name
    history.epochs(["t", "b", "s"], choose((30,), (1, 30)))
    run.drop_view("named")
    if thorough():
        history.epochs(["t", "b"], (8,))
    run.view("named", views["named"][0])
    run.reopen()
    if thorough():
        history.epochs(["t", "b", "s"], (12,))
    run.truncate("t")
    run.epoch()
    history.epochs(["t", "b", "s"], (15,))
    run.finish()


@pytest.mark.long
def test_a_copy_less_is_kept_and_written(oracle):
    run = oracle(rows_per_change=20)
    run.table("users", "id INT, name STRING", key="id")
    run.table("clicks", "user INT, n INT")
    read = "SELECT u.name, c.n FROM clicks c JOIN users u ON c.user = u.id"
    copied = f"{read} WHERE u.id >= 0"
    run.insert("users", [(i, f"user {i}") for i in range(500)])
    run.insert("clicks", [(i, i) for i in range(50)])
    stored, written = [], []
    for name, query in (("copied", copied), ("read", read)):
        run.view(name, query)
        run.insert("users", [(i, f"{name} {i}") for i in range(500)])
        run.epoch()
        assert _read(run, name) == (["users"] if name == "read" else [])
        stored.append(_stored(run, name))
        written.append(run.db.parts.ledger.epochs.newest(1)[0].counters["bytes_written"])
        run.drop_view(name)
    assert len(stored[1]) == len(stored[0]) - 1
    assert 2 * sum(stored[1].values()) < sum(stored[0].values())
    assert written[1] < 0.75 * written[0]
    run.finish()


@pytest.mark.long
def test_a_view_that_stopped_is_filled_anew_over_what_the_table_has_become(oracle):
    run = oracle(rows_per_change=40)
    run.table("users", "id INT, x INT", key="id")
    run.table("bag", "g INT, y INT")
    run.insert("users", [(i, 10) for i in range(5)])
    run.insert("bag", [(i, i) for i in range(5)])
    run.epoch()
    db = run.db
    query = "SELECT bag.y, 100 DIV users.x AS q FROM bag JOIN users ON bag.g = users.id"
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    db.sql("INSERT INTO users VALUES (2, 0)")
    db.flush()
    assert [row[0] for row in db.sql("SHOW DIRTY").fetchall()] == ["v"]
    db.sql("INSERT INTO users VALUES (2, 5), (3, 20)")
    db.sql("INSERT INTO bag VALUES (3, 33)")
    db.flush()
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
    expected = [(0, 10), (1, 10), (2, 20), (3, 5), (4, 10), (33, 5)]
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == expected
    db.sql("INSERT INTO users VALUES (0, 50)")
    db.flush()
    assert min(db.sql("SELECT * FROM v").fetchall()) == (0, 2)
    assert db.verify("v").fetchall()[0][3] == "equal to batch"


def test_a_table_stays_while_a_view_reads_its_rows(oracle):
    run = oracle(rows_per_change=40)
    run.table("users", "id INT, x INT", key="id")
    run.table("bag", "g INT, y INT")
    run.view("v", "SELECT bag.y, users.x FROM bag JOIN users ON bag.g = users.id")
    run.view("w", "SELECT bag.g, users.x FROM bag JOIN users ON bag.g = users.id")
    run.insert("users", [(1, 1), (2, 2)])
    run.insert("bag", [(1, 5)])
    run.epoch()
    with pytest.raises(Exception, match="is used by"):
        run.db.sql("DROP TABLE users")
    run.drop_view("v")
    run.db.compact()
    run.insert("bag", [(2, 6)])
    run.epoch()
    assert run.rows("w") == [(1, 1), (2, 2)]
    run.finish()


@pytest.mark.long
def test_what_is_read_and_what_is_kept_is_told(oracle):
    run = oracle()
    run.table("users", "id INT, name STRING", key="id")
    run.table("clicks", "user INT, n INT")
    run.view(
        "v", "SELECT users.name, clicks.n FROM clicks LEFT JOIN users ON clicks.user = users.id"
    )
    run.insert("users", [(1, "a"), (2, "b"), (3, "c")])
    run.insert("clicks", [(1, 1), (1, 2), (4, 3)])
    run.epoch()
    lines = [line.strip() for (line,) in run.db.sql("EXPLAIN VIEW v").fetchall()]
    (read,) = [line for line in lines if line.startswith("reads the rows of")]
    assert read.startswith("reads the rows of users by (id), 3 rows, ")
    rows = [line for line in lines if line.startswith("stores ")]
    assert len(rows) == 2
    assert all(re.search(r", 3 rows, [\d,]+ bytes$", line) for line in rows)
    size = sum(_stored(run, "v").values())
    said = f"2 arrangements stored: 6 rows, {size:,} bytes."
    assert f"{said} The rows of 1 relation are read instead of copies." in lines
    (told,) = [r for r in run.db.sql("DESCRIBE EXTENDED v").fetchall() if r[0] == "# state"]
    assert told[1].startswith(said)
    users = run.db.sql("EXPLAIN SELECT n FROM clicks JOIN users ON clicks.user = users.id")
    assert "reads the rows of users by (id)" in [line.strip() for (line,) in users.fetchall()]
    circuit = run.db.parts.engine.circuit(run.db.parts.reader.catalog.resolve("v"))
    own = [id_ for node in circuit.stateful() for id_ in own_arrangements(node)]
    assert len(own) == len(set(own)) == 2
    assert set(own) == set(_stored(run, "v"))


PARTS = {
    "twice": """WITH c AS (SELECT g, count(*) AS n, sum(x) AS x FROM t GROUP BY g)
        SELECT p.n, p.x, q.n AS m, q.x AS y FROM c p JOIN c q ON p.g = q.g""",
    "by_other_keys": """WITH c AS (SELECT g, count(*) AS n, sum(x) AS x FROM t GROUP BY g)
        SELECT p.x, q.x AS y FROM c p JOIN c q ON p.n = q.n""",
    "united": """WITH c AS (SELECT g, count(*) AS n FROM t GROUP BY g)
        SELECT g, n FROM c UNION ALL SELECT n, g FROM c UNION ALL SELECT g, -n FROM c""",
    "greatest": """WITH c AS (SELECT g, sum(x) AS x FROM t GROUP BY g)
        SELECT b.y, c.x FROM b JOIN c ON b.g = c.g WHERE c.x = (SELECT max(x) FROM c)""",
    "beside_null": """WITH c AS (SELECT g, count(*) AS n FROM t GROUP BY g)
        SELECT b.y, c.n FROM b JOIN c ON b.g = c.g UNION ALL SELECT g, n FROM c""",
    "joined": """WITH j AS (SELECT t.g, t.x, b.y FROM t JOIN b ON t.g = b.g)
        SELECT x, y FROM j UNION ALL SELECT y, x FROM j""",
    "outer_joined": """WITH j AS (SELECT t.id, b.y FROM t LEFT JOIN b ON t.g = b.g AND t.x < b.y)
        SELECT id, y FROM j UNION ALL SELECT y, id FROM j""",
    "recomputed": """WITH c AS (SELECT g, bit_xor(x) AS m FROM t GROUP BY g)
        SELECT g, m FROM c UNION ALL SELECT g + 1, m FROM c""",
    "first_rows": """WITH f AS (SELECT id, g, x FROM t ORDER BY x, id LIMIT 4)
        SELECT id, g, x FROM f UNION ALL SELECT x, g, id FROM f""",
    "windowed": """WITH w AS (SELECT id, g, rank() OVER (PARTITION BY g ORDER BY x) AS r FROM t)
        SELECT id, g, r FROM w UNION ALL SELECT r, id, g FROM w""",
    "global": "WITH c AS (SELECT count(*) AS n FROM t) SELECT p.n, q.n AS m FROM c p, c q",
}


@pytest.mark.long
def test_equal_parts_of_a_query_are_kept_once(oracle):
    run = oracle(rows_per_change=60, fill_rows=7)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.table("b", "g INT, y INT")
    history = History(run, 33, domain=8)
    parts = some(PARTS, "by_other_keys greatest outer_joined recomputed first_rows global")
    for i, (name, query) in enumerate(parts.items()):
        if i == len(parts) // 2:
            history.epochs(["t", "b"], (30,))
        run.view(name, query)
        circuit = run.db.parts.engine.circuit(run.db.parts.reader.catalog.resolve(name))
        assert max(circuit.users().values()) > 1, name
    history.epochs(["t", "b"], choose((20,), (1, 20)))
    run.reopen()
    if thorough():
        history.epochs(["t", "b"], (8,))
    run.truncate("t")
    history.epochs(["t", "b"], (20,))
    run.finish()


@pytest.mark.long
def test_a_part_that_is_used_again_keeps_nothing_more(oracle):
    run = oracle()
    run.table("t", "id INT, g INT, x INT", key="id")
    part = "SELECT g, count(*) AS n FROM t GROUP BY g"
    run.view("once", f"WITH c AS ({part}) SELECT g, n FROM c UNION ALL SELECT id, x FROM t")
    run.view("twice", f"WITH c AS ({part}) SELECT g, n FROM c UNION ALL SELECT n, g FROM c")
    run.view("others", f"SELECT g, n FROM ({part}) UNION ALL SELECT x, count(*) FROM t GROUP BY x")
    assert [len(_stored(run, name)) for name in ("once", "twice", "others")] == [2, 2, 3]
    lines = [line for (line,) in run.db.sql("EXPLAIN VIEW twice").fetchall()]
    assert sum("GroupAggregate" in line for line in lines) == 2
    assert sum("used again, see above" in line for line in lines) == 1


PASSED_THROUGH = {
    "windows": """WITH c AS (
          SELECT g, window.start AS s, count(*) AS n FROM e
          GROUP BY g, window(ts, '10 minutes', '4 minutes')
        )
        SELECT c.g, c.s, c.n FROM c JOIN (SELECT s, max(n) AS n FROM c GROUP BY s) m
        ON c.s = m.s AND c.n >= m.n""",
    "grouping_sets": """WITH c AS (SELECT g, x, count(*) AS n FROM e GROUP BY ROLLUP (g, x))
        SELECT g, x, n FROM c UNION ALL SELECT x, g, n FROM c WHERE n > 1""",
    "exploded": """WITH c AS (
          SELECT g, v, sum(x) AS n FROM e LATERAL VIEW explode(array(g, x)) w AS v GROUP BY g, v
        )
        SELECT g, v, n FROM c UNION ALL SELECT v, g, n FROM c""",
}


@pytest.mark.long
def test_equal_parts_run_once_where_all_partitions_step(oracle):
    run = oracle(rows_per_change=200, small_rows=0, fill_rows=9)
    run.table("e", "id INT, g INT, x INT, ts TIMESTAMP", key="id")
    history = History(run, 35, domain=5)
    for name, query in some(PASSED_THROUGH, "windows grouping_sets").items():
        run.view(name, query)
        if thorough():
            history.epochs(["e"], (12,))
    history.epochs(["e"], (1, 20))
    run.finish()
