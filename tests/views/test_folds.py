"""Folds in views. What is expected is Spark's own Python table function over the same events."""

from __future__ import annotations

import importlib
import random
import re
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from pyspark import cloudpickle
from pyspark.sql.functions import udtf

import headrace
from headrace.errors import HeadraceError
from length import choose

pytestmark = pytest.mark.spark

RETURNS = (
    "balance DECIMAL(18,2), n INT, seen TIMESTAMP, last STRUCT<kind: STRING, tags: ARRAY<INT>>"
)
EVENTS = "id INT, acct STRING, at TIMESTAMP, kind STRING, amount DECIMAL(10,2), tags ARRAY<INT>"
JOINED = """SELECT e.acct, e.at, e.kind, e.amount * p.rate AS amount, e.tags, p.rate
    FROM events e JOIN rates FOR SYSTEM_TIME AS OF e.at AS p ON p.kind = e.kind"""
START = datetime(2024, 1, 1)  # noqa: DTZ001


def step(state, event):
    amount = event.amount or Decimal(0)
    if event.kind == "doubled":
        state["balance"] = 2 * state["balance"]
    state["balance"] += amount
    state["n"] += 1
    state["seen"] = max(filter(None, [state["seen"], event.at]), default=None)
    state["last"] = (event.kind, event.tags)
    return state


def finished(state):
    return {**state, "last": {"kind": state["last"][0], "tags": state["last"][1]}}


def first():
    return {"balance": Decimal(0), "n": 0, "seen": None, "last": None}


balance = headrace.fold(
    key=["acct"], order_by=["at"], returns=RETURNS, start=first(), finish=finished, name="balance"
)(step)


def plain(spark, columns):
    """Register Spark's table function that does the same to rows with these columns, sorted."""

    @udtf(returnType=f"acct STRING, {RETURNS}")
    class Balance:
        def __init__(self):
            self.state, self.acct = None, None

        def eval(self, row):
            self.state = step(self.state or first(), row)
            self.acct = row["acct"]

        def terminate(self):
            if self.state is not None:
                done = finished(self.state)
                last = (done["last"]["kind"], done["last"]["tags"])
                yield self.acct, done["balance"], done["n"], done["seen"], last

    module = importlib.import_module(__name__)
    cloudpickle.register_pickle_by_value(module)  # the workers cannot import it
    try:
        spark.udtf.register("plain_balance", Balance)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return f"PARTITION BY acct ORDER BY (at NULLS FIRST, {columns}"


def changed(run, dice):
    """Change the events, and sometimes the rates from some time on."""
    match dice.randrange(4):
        case 0 | 1:
            run.insert("events", [some(dice) for _ in range(4)])
        case 2:
            run.delete("events", f"id % 7 = {dice.randrange(7)}")
        case _:
            at = START + timedelta(hours=dice.randrange(48))
            run.insert(
                "rates", [(dice.choice(["paid", "doubled"]), at, Decimal(dice.randrange(9)) / 4)]
            )


def some(dice):
    at = None if dice.random() < 0.1 else START + timedelta(hours=dice.randrange(48))
    tags = dice.choice([None, [], [1, None]])
    amount = dice.choice([None, Decimal(4 * dice.randrange(500)) / 100])
    acct = dice.choice([None, "a", "b", "c"])
    return (dice.randrange(40), acct, at, dice.choice(["paid", "doubled"]), amount, tags)


@pytest.mark.long
def test_a_fold_follows_its_events_and_the_versions_that_they_rest_on(oracle):
    run = oracle(functions=[balance], rows_per_change=80)
    dice = random.Random(3)
    order = plain(
        run.batch, "acct NULLS FIRST, kind NULLS FIRST, amount NULLS FIRST, tags NULLS FIRST"
    )
    run.table("events", EVENTS, key="id")
    run.table(
        "rates",
        "kind STRING, since TIMESTAMP, rate DECIMAL(4,2)",
        key="kind",
        effective_from="since",
    )
    run.insert("rates", [("paid", START, Decimal(1)), ("doubled", START, Decimal("0.5"))])
    run.insert("events", [some(dice) for _ in range(12)])
    columns = "SELECT acct, at, kind, amount, tags FROM events"
    run.view(
        "balances",
        f"SELECT * FROM balance(TABLE({columns}))",
        f"SELECT * FROM plain_balance(TABLE({columns}) {order}))",
    )
    versions = """SELECT e.acct, e.at, e.kind, e.amount * p.rate AS amount, e.tags, p.rate FROM events e
        JOIN (SELECT *, lead(since) OVER (PARTITION BY kind ORDER BY since) AS until FROM rates) p
        ON p.kind = e.kind AND e.at >= p.since AND (p.until IS NULL OR e.at < p.until)"""
    run.view(
        "rated",
        f"SELECT acct, balance + 1 AS more, last.kind FROM balance(TABLE({JOINED}) PARTITION BY acct ORDER BY at) WHERE n > 1",
        f"SELECT acct, balance + 1 AS more, last.kind FROM plain_balance(TABLE({versions}) {order}, rate)) WHERE n > 1",
    )
    for _ in range(choose(2, 30)):
        changed(run, dice)
        run.epoch()
    run.verify(*choose(["rated"], ["balances", "rated"]))
    run.finish()


def test_a_fold_is_refused_where_it_cannot_be_right(db):
    db.register(balance)
    db.sql("CREATE STREAM events (acct STRING, at TIMESTAMP, kind STRING, m MAP<STRING, INT>)")
    refusals = {
        "SELECT balance(acct) FROM events": "not called with the rows of a relation",
        "SELECT * FROM balance(TABLE events PARTITION BY kind)": "has another PARTITION BY: acct",
        "SELECT * FROM balance(TABLE events ORDER BY acct)": "has another ORDER BY: at",
        "SELECT * FROM balance(TABLE(SELECT kind FROM events))": "acct",
        "SELECT * FROM balance(TABLE nowhere)": '"nowhere" does not exist',
        "SELECT * FROM balance(TABLE)": "expected the name of a relation",
        "SELECT * FROM balance(events)": r"hint: Write balance\(TABLE name\)",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM balance(TABLE events)": "(?i)order|map",
        "SELECT * FROM unknown(TABLE(events))": "is not allowed in a query",
    }
    for text, why in refusals.items():
        with pytest.raises(HeadraceError) as refused:
            db.sql(text)
        assert re.search(why, str(refused.value)), refused.value


@pytest.mark.long
def test_a_fold_that_fails_stops_its_view_and_another_one_repairs_it(db):
    @headrace.fold(key=["acct"], order_by=["at"], returns="share DOUBLE", start=0)
    def shares(_state, event):
        return {"share": 1 / event.amount}

    db.register(shares)
    db.sql("CREATE STREAM paid (acct STRING, at INT, amount INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM shares(TABLE paid)")
    db.sql("INSERT INTO paid VALUES ('a', 1, 4), ('b', 1, 0)")
    with pytest.raises(HeadraceError, match=r'view "v" stopped') as stopped:
        db.sql("SELECT * FROM v")
    for said in ('function "shares" failed', "ZeroDivisionError", "acct='b', at=1, amount=0"):
        assert said in stopped.value.detail

    @headrace.fold(key=["acct"], order_by=["at"], returns="share DOUBLE", start=0, name="shares")
    def corrected(_state, event):
        return {"share": 1 / event.amount if event.amount else None}

    with pytest.raises(HeadraceError, match="differs from the one called by"):
        db.register(corrected)
    db.register(corrected, replace=True)
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [("a", 0.25), ("b", None)]
    db.sql("INSERT INTO paid VALUES ('b', 2, 2), ('a', 0, 9)")
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [("a", 0.25), ("b", 0.5)]
    assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_a_fold_that_is_not_of_its_events_alone_is_refused_and_nothing_changes(db):
    calls = iter(range(10**9))

    def counted(state, event):
        return {"n": state["n"] + event.amount + next(calls)}

    def summed(state, event):
        return {"n": state["n"] + event.amount}

    parts = {"key": ["acct"], "order_by": ["at"], "returns": "n BIGINT", "start": {"n": 0}}
    db.register(headrace.fold(**parts, name="total")(summed))
    db.sql("CREATE STREAM paid (acct STRING, at INT, amount INT)")
    db.sql("INSERT INTO paid VALUES ('a', 1, 4), ('a', 2, 5), ('b', 1, 6)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM total(TABLE paid)")
    db.register(headrace.fold(**parts, name="counted")(counted))
    with pytest.raises(HeadraceError, match='fold "counted" gives different rows') as refused:
        db.sql("CREATE MATERIALIZED VIEW w AS SELECT * FROM counted(TABLE paid)")
    assert "Events: (1) acct=" in refused.value.detail
    assert ("materialized view", "w") not in db.relations()
    with pytest.raises(HeadraceError, match='fold "total" gives different rows'):
        db.register(headrace.fold(**parts, name="total")(counted), replace=True)
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [("a", 9), ("b", 6)]
    db.sql("INSERT INTO paid VALUES ('b', 0, 1)")
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [("a", 9), ("b", 7)]


@pytest.mark.long
def test_a_view_waits_for_its_fold_and_catches_up(spark, tmp_path):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "db", functions=[balance], **settings) as db:
        db.sql(
            "CREATE STREAM events (acct STRING, at TIMESTAMP, kind STRING, amount INT, tags ARRAY<INT>)"
        )
        db.sql("INSERT INTO events VALUES ('a', TIMESTAMP '2024-01-02', 'paid', 4, NULL)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT acct, balance, n FROM balance(TABLE events)")
    with headrace.connect(tmp_path / "db", **settings) as db:
        for query in ("SELECT * FROM v", "SELECT * FROM balance(TABLE events)"):
            with pytest.raises(HeadraceError, match=r"waits for a function|is not registered"):
                db.sql(query)
        db.sql("INSERT INTO events VALUES ('a', TIMESTAMP '2024-01-01', 'doubled', 3, NULL)")
        db.flush()
        db.register(balance)
        assert db.sql("SELECT * FROM v").fetchall() == [("a", Decimal(7), 2)]
        db.sql("INSERT INTO events VALUES ('a', TIMESTAMP '2024-01-03', 'doubled', 0, NULL)")
        assert db.sql("SELECT * FROM v").fetchall() == [("a", Decimal(14), 3)]
        assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    with headrace.connect(tmp_path / "db", functions=[balance], **settings) as db:
        db.sql("INSERT INTO events VALUES ('b', TIMESTAMP '2024-01-03', 'paid', 1, NULL)")
        rows = sorted(db.sql("SELECT * FROM v").fetchall())
        assert rows == [("a", Decimal(14), 3), ("b", Decimal(1), 1)]
