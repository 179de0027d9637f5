"""As-of joins between streams and tables, with late rows on either side.

What is expected is Spark's own as-of join, as a batch; where rows tie in time, which Spark leaves
open, it is written another way.
"""

from __future__ import annotations

import random

import pytest

from headrace.errors import HeadraceError
from length import choose

pytestmark = pytest.mark.spark

TRADES = "id INT, sym STRING, at INT, qty INT"
QUOTES = "nr INT, sym STRING, at INT, price INT"

VIEWS = {
    "latest": """SELECT t.id, t.at, q.nr, q.sym AS s, q.at AS quoted, q.price FROM trades t LEFT ASOF JOIN quotes q
        MATCH_CONDITION (t.at >= q.at) ON t.sym = q.sym""",
    "before": """SELECT t.id, q.price FROM trades t ASOF JOIN quotes q
        MATCH_CONDITION (q.at < t.at + 1) ON q.sym = t.sym AND q.price > 2 AND t.qty > 1""",
    "next_": """SELECT sym, id, trades.at, qty, nr, price FROM trades LEFT ASOF JOIN quotes MATCH_CONDITION (trades.at <= quotes.at)
        USING (sym)""",
    "after": """SELECT t.id, q.nr FROM trades t INNER ASOF JOIN (SELECT nr, upper(sym) AS s, at FROM quotes) q
        MATCH_CONDITION (t.at < q.at) ON upper(t.sym) <=> q.s""",
    "strict": """SELECT sym, sum(qty * price) AS paid FROM (SELECT t.sym, t.qty, q.price FROM trades t
        LEFT ASOF JOIN quotes q MATCH_CONDITION (t.at > q.at) ON t.sym = q.sym) GROUP BY sym""",
    "twice": """SELECT t.id, a.price AS earlier, b.price AS later FROM trades t
        LEFT ASOF JOIN quotes a MATCH_CONDITION (t.at >= a.at) ON t.sym = a.sym
        LEFT ASOF JOIN quotes b MATCH_CONDITION (t.at < b.at) ON t.sym = b.sym""",
}


class Exchange:
    """Trades, which are a stream or a table, and quotes, of which no two of a symbol tie."""

    def __init__(self, run, seed: int, *, stream: bool) -> None:
        self.run, self.dice, self.stream = run, random.Random(seed), stream
        run.batch.conf.set("spark.sql.join.asofJoin.enabled", "true")
        if stream:
            run.stream("trades", TRADES)
        else:
            run.table("trades", TRADES, key="id")
        run.table("quotes", QUOTES, key="nr")

    def trades(self, count: int) -> None:
        dice = self.dice
        self.run.insert(
            "trades",
            [
                (
                    dice.randrange(20),
                    dice.choice(["x", "y", None]),
                    dice.choice([None, *range(12)]),
                    dice.randrange(5),
                )
                for _ in range(count)
            ],
        )

    def quotes(self, count: int) -> None:
        """Quotes at any time, late or not; the number says the time, so that none ties."""
        dice = self.dice
        rows = []
        for _ in range(count):
            nr = dice.randrange(36)
            at = None if nr % 12 == 11 else nr % 12
            rows.append((nr, ["x", "y", None][nr // 12], at, dice.randrange(9)))
        self.run.insert("quotes", rows)

    def change(self) -> None:
        match self.dice.randrange(4):
            case 0:
                self.trades(3)
            case 1:
                self.quotes(3)
                self.trades(1)
            case 2:
                self.run.update("quotes", {"price": "price + 1"}, "at % 3 = 1")
                if not self.stream:
                    self.run.update("trades", {"at": "at + 2"}, "id % 4 = 1")
            case _:
                self.run.delete("quotes", f"nr % 4 = {self.dice.randrange(4)}")


@pytest.mark.long
@pytest.mark.parametrize("stream", [pytest.param(True, marks=pytest.mark.long), False])
def test_the_nearest_row_is_found_as_rows_come_late_change_and_go(oracle, stream):
    run = oracle(rows_per_change=60)
    exchange = Exchange(run, 1 + stream, stream=stream)
    exchange.trades(6)
    exchange.quotes(8)
    names = list(VIEWS)
    for name in names[::2] if stream else names[1::2]:
        run.view(name, VIEWS[name])
    for _ in range(choose(2, 3)):
        exchange.change()
        run.epoch()
    run.truncate("quotes")
    run.epoch()
    exchange.quotes(5)
    run.finish()


def test_rows_that_tie_in_time_go_by_all_their_values(oracle):
    run = oracle(rows_per_change=60)
    run.stream("trades", "id INT, sym STRING, at INT")
    run.table("quotes", "sym STRING, at INT, price INT, note STRING")
    greatest = """SELECT t.id, max(struct(q.at, q.sym, q.at, q.price, q.note)) AS m FROM trades t
        LEFT JOIN quotes q ON t.sym = q.sym AND t.at >= q.at GROUP BY t.id"""
    run.view(
        "latest",
        """SELECT t.id, q.price, q.note, q.sym AS s FROM trades t LEFT ASOF JOIN quotes q
        MATCH_CONDITION (t.at >= q.at) ON t.sym = q.sym""",
        f"SELECT id, m.price, m.note, m.sym AS s FROM ({greatest})",
    )
    run.insert("trades", [(1, "x", 5), (2, "x", 3), (3, "y", 9)])
    run.insert(
        "quotes", [("x", 3, 1, "a"), ("x", 3, 1, "b"), ("x", 3, None, "c"), ("y", 1, 2, "d")]
    )
    run.epoch()
    run.insert("quotes", [("x", 3, 1, "b"), ("x", 3, 1, "b"), ("x", 3, 0, "z")])
    run.epoch()
    run.delete("quotes", "note = 'b'")
    run.epoch()
    run.delete("quotes", "price IS NOT NULL")
    run.insert("trades", [(4, "x", 3), (5, "x", 2)])
    run.finish()


TIES = {
    "latest": """SELECT t.id, q.price, q.note FROM trades t LEFT ASOF JOIN quotes q
        MATCH_CONDITION (t.at >= q.at) ON t.sym = q.sym""",
    "cheap": """SELECT t.id, q.price FROM trades t ASOF JOIN quotes q
        MATCH_CONDITION (t.at < q.at) ON t.sym <=> q.sym AND q.price < 3""",
    "over": """SELECT p.sym, count(q.note) AS n, min(q.note) AS least, max(q.nr) AS nr
        FROM (SELECT sym, at + 1 AS at FROM trades) p LEFT ASOF JOIN
        (SELECT note, sym, at, nr FROM quotes WHERE price > 0) q
        MATCH_CONDITION (p.at >= q.at) USING (sym) GROUP BY p.sym""",
    "chained": """SELECT l.id, q.nr FROM latest l LEFT ASOF JOIN quotes q
        MATCH_CONDITION (l.id <= q.at) ON l.note = q.note""",
}


@pytest.mark.long
def test_the_inequality_may_stand_in_on(oracle):
    run = oracle(rows_per_change=60)
    exchange = Exchange(run, 5, stream=True)
    exchange.trades(6)
    exchange.quotes(8)
    run.view(
        "qualified",
        """SELECT t.id, t.at, q.nr, q.price FROM trades t ASOF LEFT JOIN quotes q
        ON t.sym = q.sym AND t.at >= q.at AND q.price > 1""",
        """SELECT t.id, t.at, q.nr, q.price FROM trades t LEFT ASOF JOIN quotes q
        MATCH_CONDITION (t.at >= q.at) ON t.sym = q.sym AND q.price > 1""",
    )
    run.view(
        "bare",
        "SELECT id, qt, price FROM trades ASOF JOIN (SELECT sym AS s, at AS qt, price FROM quotes) ON s = sym AND qt < at",
        """SELECT id, p.at AS qt, p.price FROM trades t JOIN (SELECT *, lead(at) OVER (PARTITION BY sym ORDER BY at) AS next
        FROM quotes WHERE at IS NOT NULL) p ON p.sym = t.sym AND p.at < t.at AND coalesce(p.next >= t.at, true)""",
    )
    run.view(
        "alone",
        "SELECT t.id, q.m AS m FROM trades t ASOF JOIN (SELECT max(at) AS m FROM quotes) q ON t.at > q.m",
        "SELECT t.id, m FROM trades t, (SELECT max(at) AS m FROM quotes) WHERE t.at > m",
    )
    for _ in range(2):
        exchange.change()
        run.epoch()
    run.finish()


@pytest.mark.long
def test_queries_and_verify_choose_among_rows_that_tie_as_views_do(db):
    dice = random.Random(2)
    db.sql("CREATE TABLE trades (id INT, sym STRING, at INT, PRIMARY KEY (id))")
    db.sql("CREATE TABLE quotes (nr INT, sym STRING, at INT, price INT, note STRING)")

    def some(*values):
        return dice.choice(values)

    for name, text in TIES.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    for _ in range(choose(1, 2)):
        trades = [
            (dice.randrange(30), some("x", "y", None), some(1, 2, 3, None)) for _ in range(12)
        ]
        quotes = [
            (
                nr,
                some("x", "y", None),
                some(1, 2, 3),
                some(None, 0, 1, 2, 3, 4),
                some(None, "a", "b"),
            )
            for nr in range(40)
        ]
        db.insert("trades", list({row[0]: row for row in trades}.values()))
        db.insert("quotes", quotes)
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
        for name, text in TIES.items():
            held = db.sql(f"SELECT * FROM {name}").fetchall()
            asked = db.sql(f"SELECT * FROM ({text}) WHERE true").fetchall()
            assert sorted(map(repr, asked)) == sorted(map(repr, held)), name
        db.sql("DELETE FROM quotes WHERE nr % 3 = 0")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT a.k FROM t a ASOF JOIN t b MATCH_CONDITION (a.at >= b.at) ON a.k < b.k",
            "over both sides other than an equality",
        ),
        (
            "SELECT a.k FROM t a ASOF JOIN t b MATCH_CONDITION (a.at >= 3) ON a.k = b.k",
            "MATCH_CONDITION must compare",
        ),
        (
            "SELECT a.k FROM t a ASOF JOIN t b MATCH_CONDITION (a.at = b.at) ON a.k = b.k",
            "must be one of >=, >, <=, <",
        ),
    ],
)
def test_what_is_no_as_of_join_is_refused(db, query, said):
    db.sql("CREATE TABLE t (k INT, at INT)")
    with pytest.raises(HeadraceError) as refused:
        db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert said in str(refused.value)
