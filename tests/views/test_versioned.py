"""Versioned tables: joins as of an event's time, while events and versions change.

What is expected is written another way, over plain rows: the version of a key that holds at a time
is the one with the greatest date up to it.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from headrace.errors import HeadraceError
from length import choose

pytestmark = pytest.mark.spark

ORDERS = "id INT, region STRING, ts TIMESTAMP, amount INT"
POLICY = "region STRING, rate DECIMAL(6,4), since TIMESTAMP"
REGIONS = ["eu", "us", "ap"]
START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 12

# A row of orders, the time it looks up, and the rate and date that it should find.
LATEST = """SELECT o.id, o.region, o.amount, {time} AS at, max(p.since) AS since,
    max_by(p.rate, p.since) AS rate FROM orders o LEFT JOIN policy p
    ON p.region = o.region AND p.since <= {time} GROUP BY o.id, o.region, o.amount, {time}"""
AT_TS = LATEST.format(time="o.ts")
NEXT_DAY = LATEST.format(time="o.ts + INTERVAL 1 DAY")

VIEWS = {
    "inner_": (
        """SELECT o.id, p.*, o.amount * p.rate AS due -- FOR SYSTEM_TIME AS OF
        FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts AS p ON o.region = p.region""",
        f"SELECT id, region, rate, since, amount * rate AS due FROM ({AT_TS}) WHERE since IS NOT NULL",
    ),
    "left_": (
        """SELECT o.*, p.rate, p.since FROM orders o LEFT JOIN policy FOR SYSTEM_TIME AS OF ts p
        ON o.region = p.region AND p.rate > 0.2""",
        f"""SELECT o.*, p.rate, p.since FROM orders o LEFT JOIN
        (SELECT * FROM ({AT_TS}) WHERE rate > 0.2) p ON o.id = p.id""",
    ),
    "summed": (
        """WITH due AS (SELECT o.region, o.amount * rate AS due FROM orders o
        JOIN policy FOR SYSTEM_TIME AS OF o.ts ON o.region = policy.region)
        SELECT region, sum(due) AS due, count(*) AS n FROM due GROUP BY region""",
        f"""SELECT region, sum(amount * rate) AS due, count(*) AS n FROM ({AT_TS})
        WHERE since IS NOT NULL GROUP BY region""",
    ),
    "twice": (
        """SELECT o.id, a.rate AS today, b.rate AS tomorrow FROM orders o
        LEFT JOIN policy FOR SYSTEM_TIME AS OF o.ts a ON a.region = o.region
        LEFT JOIN policy FOR SYSTEM_TIME AS OF o.ts + INTERVAL 1 DAY AS b ON b.region = o.region""",
        f"SELECT a.id, a.rate AS today, b.rate AS tomorrow FROM ({AT_TS}) a JOIN ({NEXT_DAY}) b USING (id)",
    ),
    "constant": (
        "SELECT * FROM policy FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-06 00:00:00'",
        """SELECT region, max_by(rate, since) AS rate, max(since) AS since FROM policy
        WHERE since <= TIMESTAMP '2024-01-06 00:00:00' GROUP BY region""",
    ),
    "covered": (
        """SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1
        FROM policy FOR SYSTEM_TIME AS OF o.ts p WHERE p.region = o.region AND p.rate < 0.5)""",
        f"SELECT id FROM ({AT_TS}) WHERE NOT coalesce(rate < 0.5, false)",
    ),
}


def moment(day: float) -> datetime:
    return START + timedelta(days=day)


def rate(dice: random.Random) -> Decimal:
    return Decimal(dice.randrange(10)) / 10


class Shop:
    """Orders and policies of a few regions, changed at random."""

    def __init__(self, run, seed: int) -> None:
        self.run = run
        self.dice = random.Random(seed)
        run.table("orders", ORDERS, key="id")
        run.table("policy", POLICY, key="region", effective_from="since")

    def orders(self, count: int) -> None:
        """Orders that are new or changed, in any order of time; some have none."""
        dice = self.dice
        rows = []
        for _ in range(count):
            at = None if dice.random() < 0.1 else moment(dice.randrange(2 * DAYS) / 2)
            region = dice.choice([*REGIONS, "nowhere", None])
            rows.append((dice.randrange(30), region, at, dice.randrange(100)))
        self.run.insert("orders", rows)

    def versions(self, count: int) -> None:
        """Versions of any date: later, retroactive, or in place of one of the same date."""
        dice = self.dice
        rows = [
            (dice.choice(REGIONS), rate(dice), moment(2 + dice.randrange(DAYS)))
            for _ in range(count)
        ]
        self.run.insert("policy", rows)

    def change(self) -> None:
        """Change both sides, or one of them, or take something away."""
        match self.dice.randrange(6):
            case 0:
                self.orders(4)
            case 1:
                self.versions(1)
            case 2:
                self.run.delete("policy", f"rate = {self.dice.randrange(10)} / 10")
                self.orders(1)
            case 3:
                self.run.update("policy", {"since": "since - INTERVAL 36 HOURS"}, "region = 'eu'")
            case 4:
                self.run.delete("orders", f"id % 5 = {self.dice.randrange(5)}")
            case _:
                self.orders(3)
                self.versions(3)


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.long), 2])
def test_views_over_versions_equal_batch_whatever_happens(oracle, seed):
    run = oracle(rows_per_change=400)
    shop = Shop(run, seed)
    shop.orders(10)
    chosen = list(VIEWS)[seed % 2 :: choose(4, 2)]
    for i, name in enumerate(chosen):
        run.view(name, *VIEWS[name])
        if i == 0:
            shop.versions(6)
    shop.orders(5)
    run.epoch()
    for _ in range(choose(2, 9)):
        shop.change()
        run.epoch()
    run.truncate("policy")
    shop.versions(4)
    run.finish()


@pytest.mark.long
def test_keys_of_several_columns_dates_of_days_and_events_of_a_stream(oracle):
    run = oracle(rows_per_change=400)
    run.stream("sales", "item INT, shop STRING, at TIMESTAMP_NTZ, n INT")
    run.table("price", "shop STRING, day DATE, cents INT, item INT", "item, shop", "day")
    run.view(
        "sold",
        """SELECT s.item, s.at, cents, s.n * cents AS total FROM sales s LEFT JOIN
        price FOR SYSTEM_TIME AS OF s.at AS p ON p.item = s.item AND p.shop = s.shop""",
        """SELECT item, at, cents, n * cents AS total FROM (SELECT s.*, (SELECT max_by(p.cents, p.day)
        FROM price p WHERE p.item = s.item AND p.shop = s.shop AND p.day <= s.at) AS cents FROM sales s)""",
    )
    run.view("earned", "SELECT item, sum(total) AS total FROM sold GROUP BY item")
    first = datetime(2024, 1, 1)  # noqa: DTZ001 - without a zone, as TIMESTAMP_NTZ has it
    noon = first + timedelta(hours=12)
    prices = [("a", first.date(), 10, 1), ("b", first.date(), 20, 1), ("a", first.date(), 5, 2)]
    sales = [(1, "a", noon, 1), (1, "a", noon, 1), (1, "b", first, 2), (2, "b", noon, 3)]
    run.insert("price", prices)
    run.insert("sales", sales)
    run.epoch()
    assert run.rows("earned") == [(1, 60), (2, None)]
    second = first + timedelta(days=1)
    run.insert("sales", [(1, "a", second, 1), (2, "a", None, 1), (None, "a", second, 1)])
    run.insert("price", [("a", second.date(), 11, 1), ("b", first.date(), 21, 1)])
    run.epoch()
    assert run.rows("earned") == [(1, 73), (2, None), (None, None)]
    run.delete("price", "item = 1 AND day = DATE '2024-01-01'")
    run.finish()


@pytest.mark.long
def test_a_retroactive_version_changes_only_what_lies_in_its_interval(db):
    db.sql(f"CREATE STREAM orders ({ORDERS})")
    db.sql(f"CREATE TABLE policy ({POLICY}, PRIMARY KEY (region)) WITH (effective_from = 'since')")
    versions = [("eu", 0.1, moment(0)), ("eu", 0.3, moment(10)), ("us", 1, moment(0))]
    db.insert("policy", [(region, Decimal(str(rate)), since) for region, rate, since in versions])
    db.insert("orders", [(i, ("eu", "us")[i % 2], moment(i / 2), 1) for i in range(40)])
    db.sql("""CREATE MATERIALIZED VIEW rates AS SELECT o.id, p.rate FROM orders o
        LEFT JOIN policy FOR SYSTEM_TIME AS OF o.ts AS p ON o.region = p.region""")
    with db.subscribe("SELECT * FROM rates") as changes:
        changes.poll()
        db.sql("INSERT INTO policy VALUES ('eu', 0.2, TIMESTAMP '2024-01-05')")
        db.flush()
        found = changes.poll()
        assert sorted((c.row["id"], c.weight, str(c.row["rate"])) for c in found) == sorted(
            change for i in range(8, 20, 2) for change in [(i, -1, "0.1000"), (i, 1, "0.2000")]
        )
        db.sql("INSERT INTO policy VALUES ('eu', 0.4, TIMESTAMP '2024-02-01')")
        db.flush()
        assert not changes.poll()
        db.sql("DELETE FROM policy WHERE since = TIMESTAMP '2024-01-05'")
        db.flush()
        assert {c.row["id"] for c in changes.poll()} == set(range(8, 20, 2))
    assert db.sql("VERIFY").fetchall() == [("rates", 40, 0, "equal to batch")]


@pytest.mark.long
def test_versions_are_rows_of_which_the_last_of_a_date_wins_and_survive_a_restart(tmp_path, spark):
    import headrace

    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "db", **settings) as db:
        db.sql("""CREATE TABLE tax (Country STRING, rate INT, From_Day DATE, PRIMARY KEY (country))
            WITH (effective_from = 'from_day')""")
        db.sql(
            "INSERT INTO tax VALUES ('de', 16, DATE '2000-01-01'), ('de', 19, DATE '2007-01-01')"
        )
        db.sql("INSERT INTO tax VALUES ('de', 18, DATE '2007-01-01')")
        db.sql("UPDATE tax SET rate = 19 WHERE rate = 18")
        assert sorted(row[1] for row in db.sql("SELECT * FROM tax").fetchall()) == [16, 19]
    with headrace.connect(tmp_path / "db", **settings) as db:
        described = db.sql("DESCRIBE EXTENDED tax").fetchall()
        assert ("From_Day", "date", "effective from") in described
        assert ("Country", "string", "key") in described
        assert ("# versions", "of each (Country), from From_Day on", "") in described
        text = "SELECT rate FROM tax FOR SYSTEM_TIME AS OF DATE '2006-12-31'"
        assert db.sql(text).fetchall() == [(16,)]
        with pytest.raises(HeadraceError) as caught:
            db.sql("INSERT INTO tax VALUES ('de', 1, NULL)")
        assert 'column "From_Day" of table "tax" is NULL' in caught.value.primary


REFUSED = """
CREATE TABLE x (a INT, b DATE, PRIMARY KEY (a)) WITH (effective_from = 'xyz')
                                                      ^^^^^^^^^^^^^^^^^^^^^^
invalid: effective column "xyz" does not exist
hint: There are: a, b.

CREATE TABLE x (a INT, b INT, PRIMARY KEY (a)) WITH (effective_from = b)
                         ^^^
invalid: effective column "b" is INT
hint: Use DATE, TIMESTAMP or TIMESTAMP_NTZ: it is the time from which a row is valid.

CREATE TABLE x (a INT, b DATE) WITH (effective_from = 'b')
                                     ^^^^^^^^^^^^^^^^^^^^
invalid: a versioned table has no PRIMARY KEY
hint: Declare PRIMARY KEY (...): a row is a version of its key, from its date on.

CREATE STREAM x (a INT, b DATE) WITH (topic = 'x', effective_from = 'b')
                                                   ^^^^^^^^^^^^^^^^^^^^
invalid: a versioned table has no PRIMARY KEY
hint: Declare PRIMARY KEY (...): a row is a version of its key, from its date on.

CREATE TABLE x (a INT, b DATE, PRIMARY KEY (a, b)) WITH (effective_from = 'b')
                                                         ^^^^^^^^^^^^^^^^^^^^
invalid: effective column "b" is in the PRIMARY KEY
hint: Leave it out of PRIMARY KEY: each key may have one version from any date on.

CREATE TABLE x (a INT, b DATE, PRIMARY KEY (a)) WITH (effective_form = 'b')
                                                      ^^^^^^^^^^^^^^^^^^^^
invalid: option "effective_form" does not exist
hint: Did you mean "effective_from"?

CREATE MATERIALIZED VIEW x WITH (effective_from = 'since') AS SELECT * FROM policy
                                 ^^^^^^^^^^^^^^^^^^^^^^^^
unsupported: effective_from of a query is not supported
hint: Declare the columns and a PRIMARY KEY, and INSERT the versions.

CREATE MATERIALIZED VIEW x AS SELECT p.nope FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts p ON true
                                     ^^^^^^
invalid: column "p.nope" does not exist
hint: Did you mean "p.since"?

SELECT p.rate FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.tss p ON o.region = p.region WHERE o.id > 0
                                                              ^^^^^
invalid: column "o.tss" does not exist
hint: None

SELECT p.rate FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.amount p ON o.region = p.region
                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
invalid: cannot resolve "(o.amount >= effective_from)" due to data type mismatch: the left and right operands of the binary operator have incompatible types ("INT" and "TIMESTAMP")
hint: None

CREATE MATERIALIZED VIEW x AS SELECT rate FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts p ON p.region = o.region WHERE rand() > 0.5
                                                                                                                              ^^^^^^
unsupported: function "rand" is not allowed in a query
hint: Compute the value before inserting it, or derive it from columns, for instance with xxhash64.

CREATE MATERIALIZED VIEW x AS SELECT id FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts p ON true LIMIT 3
                                                                                                       ^^^^^^^
unsupported: LIMIT without ORDER BY is not supported in a view
hint: Without an order, any of the rows could be chosen. Add ORDER BY with columns whose values can be compared.

SELECT * FROM orders FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01'
              ^^^^^^
invalid: stream "orders" has no versions
hint: Declare a table with PRIMARY KEY and WITH (effective_from = 'column').
"""


def test_what_cannot_be_is_refused_where_it_is_written(db):
    db.sql(f"CREATE STREAM orders ({ORDERS})")
    db.sql(f"CREATE TABLE policy ({POLICY}, PRIMARY KEY (region)) WITH (effective_from = 'since')")
    said = []
    for block in REFUSED.strip().split("\n\n"):
        text = block.split("\n")[0]
        with pytest.raises(HeadraceError) as caught:
            db.sql(text)
        error = caught.value
        carets = str(error.span).split("\n")[1][7:]
        said += [text, carets, f"{error.code}: {error.primary}", f"hint: {error.hint}", ""]
    assert said[:-1] == REFUSED.strip().split("\n")
