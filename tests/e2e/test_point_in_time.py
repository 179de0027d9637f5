"""Views as of the times of pairs equal a batch as-of join by Spark, and show nothing later."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import pandas as pd
import pyarrow as pa
import pytest

import headrace
from asked import rows
from headrace.errors import Code, HeadraceError, Span
from length import choose
from sessions import PARTITIONS, batch_session

pytestmark = pytest.mark.spark

HOUR = timedelta(hours=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
DEFINITIONS = """
CREATE STREAM purchases (id INT, user_id STRING, amount INT, at TIMESTAMP);
CREATE TABLE tiers (user_id STRING, since TIMESTAMP, tier STRING, PRIMARY KEY (user_id))
  WITH (effective_from = 'since');
CREATE MATERIALIZED VIEW totals WITH (history = '10 hours') AS
  SELECT user_id, count(*) AS purchases, sum(amount) AS spent FROM purchases GROUP BY user_id;
CREATE MATERIALIZED VIEW week AS
  WITH steps AS (
    SELECT user_id, at AS valid_from, 1 AS n, amount FROM purchases
    UNION ALL SELECT user_id, at + INTERVAL '7' DAY, -1, -amount FROM purchases)
  SELECT user_id, valid_from, SUM(SUM(n)) OVER upto AS n_7d, SUM(SUM(amount)) OVER upto AS spent_7d
  FROM steps WHERE valid_from IS NOT NULL GROUP BY user_id, valid_from
  WINDOW upto AS (PARTITION BY user_id ORDER BY valid_from);
"""
JOINED = """
SELECT p.nr, t.purchases, t.spent, w.n_7d, w.spent_7d, r.tier
FROM pairs p
LEFT JOIN (SELECT p.nr, max_by(struct(h.purchases, h.spent, h.there), h.committed) AS t
  FROM pairs p JOIN history h ON h.user_id = p.user_id AND h.committed <= p.at
  GROUP BY p.nr) h ON h.nr = p.nr
LEFT JOIN LATERAL (SELECT h.t.purchases, h.t.spent WHERE h.t.there) t
LEFT JOIN (SELECT p.nr, max_by(struct(w.n_7d, w.spent_7d), w.valid_from) AS v
  FROM pairs p JOIN week w ON w.user_id = p.user_id AND w.valid_from <= p.at GROUP BY p.nr) w0
  ON w0.nr = p.nr
LEFT JOIN LATERAL (SELECT w0.v.n_7d, w0.v.spent_7d WHERE w0.v IS NOT NULL) w
LEFT JOIN (SELECT p.nr, max_by(r.tier, r.since) AS tier
  FROM pairs p JOIN tiers r ON r.user_id = p.user_id AND r.since <= p.at GROUP BY p.nr) r
  ON r.nr = p.nr
"""


class Clock:
    """The time of a database, which only the test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return int(self.now.timestamp() * 1_000_000)


class System:
    """A database, and the contents of ``totals`` after each of its epochs."""

    def __init__(self, spark, directory) -> None:
        self.spark, self.directory, self.clock = spark, directory, Clock()
        self.history: list[tuple] = []
        self.db = self.opened()
        self.db.sql(DEFINITIONS)

    def opened(self):
        return headrace.connect(
            self.directory,
            spark=self.spark,
            clock=self.clock,
            continuous=False,
            partitions=PARTITIONS,
            history_epochs=2,
        )

    def readable(self) -> datetime:
        """Return the time from which on ``totals`` can be read."""
        ((at,),) = self.db.sql(
            "SELECT readable_from_time FROM information_schema.tables WHERE table_name = 'totals'"
        ).fetchall()
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    def step(self, text: str) -> None:
        """Run a statement an hour later, and keep what ``totals`` shows then."""
        self.clock.now += HOUR
        self.db.sql(text)
        self.db.flush()
        users = {user for user, *_ in self.history}
        found = {u: (n, s) for u, n, s in self.db.sql("SELECT * FROM totals").fetchall()}
        for user in users | found.keys():
            values = found.get(user, (None, None))
            self.history.append((user, self.clock.now, *values, user in found))

    def expected(self, pairs: pa.Table) -> list[tuple]:
        """Return the join, by Spark batch over the history and the present rows."""
        batch = batch_session(self.spark)
        batch.createDataFrame(
            self.history,
            "user_id STRING, committed TIMESTAMP, purchases BIGINT, spent BIGINT, there BOOLEAN",
        ).createOrReplaceTempView("history")
        for name in ("week", "tiers"):
            table = self.db.sql(f"SELECT * FROM {name}").to_arrow()
            batch.createDataFrame(table).createOrReplaceTempView(name)
        batch.createDataFrame(pairs).createOrReplaceTempView("pairs")
        return sorted(map(tuple, batch.sql(JOINED).collect()), key=lambda row: row[0])


@pytest.mark.long
def test_views_as_of_the_times_of_pairs_are_a_batch_join(spark, tmp_path):
    random, system = Random(7), System(spark, tmp_path / "data")
    numbers = iter(range(1, 10_000))
    users = ["ann", "bob", "cy"]

    def purchase() -> str:
        late = system.clock.now - random.randrange(20 * 24) * HOUR
        return f"({next(numbers)}, '{random.choice(users)}', {random.randrange(100)}, TIMESTAMP '{late:%Y-%m-%d %H:%M:%S}')"

    def upsert() -> str:
        since = system.clock.now - random.randrange(100) * HOUR
        user, tier = random.choice(users), random.choice(["basic", "gold"])
        return (
            f"INSERT INTO tiers VALUES ('{user}', TIMESTAMP '{since:%Y-%m-%d %H:%M:%S}', '{tier}')"
        )

    def insert() -> str:
        return f"INSERT INTO purchases VALUES {', '.join(purchase() for _ in range(3))}"

    for round_ in range(choose(4, 12)):
        system.step(insert())
        system.step(upsert())
        user = random.choice(users)
        system.step(
            f"CORRECT STREAM purchases VOID WHERE user_id = '{user}' AND amount < 50"
            if round_ % 2
            else f"CORRECT STREAM purchases SET amount = amount + 1 WHERE user_id = '{user}'"
        )
        system.step(f"REPLAY VIEW totals WHERE user_id = '{user}'")
        system.db.parts.pump.compaction.run()
        if round_ % 2:
            system.step(
                "CREATE OR REPLACE MATERIALIZED VIEW totals WITH (history = '10 hours') AS SELECT user_id, count(*) AS"
                f" purchases, sum(amount + {round_ - round_}) AS spent FROM purchases WHERE"
                f" amount >= {round_} GROUP BY user_id"
            )
        system.db.close()
        system.db = system.opened()
        begin = system.readable()
        hours = int((system.clock.now - begin) / HOUR)
        asked = [
            (
                random.choice([*users, "nobody", None]),
                begin + HOUR * random.randrange(2 * hours + 4) / 2,
            )
            for _ in range(40)
        ]
        pairs = pa.table(
            {
                "nr": pa.array(range(40)),
                "user_id": [user for user, _ in asked],
                "at": pa.array([at for _, at in asked], pa.timestamp("us", "UTC")),
            }
        )
        found = system.db.as_of(pairs, ["totals", "week", "tiers"])
        assert found.columns == (
            "nr", "user_id", "at", "purchases", "spent", "n_7d", "spent_7d", "tier",
        )  # fmt: skip
        table = found.to_arrow()
        assert table.select(pairs.column_names).equals(pairs)
        values = table.drop_columns(["user_id", "at"]).to_pylist()
        assert [tuple(row.values()) for row in values] == system.expected(pairs)
        assert found.freshness.epoch == found.epoch
        early = [{"user_id": "ann", "at": begin - timedelta(seconds=1)}]
        assert "cannot be read at the times" in str(
            refused(lambda early=early: system.db.as_of(early, "totals"))
        )
    assert begin > START + HOUR
    system.db.close()


def refused(call) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        call()
    return raised.value


def test_pairs_are_given_in_many_forms_and_checked(spark, tmp_path):
    system = System(spark, tmp_path / "data")
    db = system.db
    system.step("INSERT INTO purchases VALUES (1, 'ann', 10, TIMESTAMP '2026-03-01 00:00:00')")
    at = system.clock.now
    system.step("INSERT INTO purchases VALUES (2, 'ann', 5, TIMESTAMP '2026-03-01 01:00:00')")
    frame = pd.DataFrame({"user_id": ["ann", "ann", "bob"], "at": [at, at + HOUR, at]})
    expected = [10, 15, None]
    assert db.as_of(frame, "totals(spent)").to_arrow()["spent"].to_pylist() == expected
    dicts = frame.to_dict("records")
    found = db.as_of(dicts, {"totals": {"spent": "s"}}, time="AT").to_arrow()
    assert found["s"].to_pylist() == expected
    # A time in the future reads the last epoch; one without a zone is UTC; a date is its midnight.
    far = pa.table({"user_id": ["ann"] * 2, "at": [date(2099, 1, 1), date(2026, 3, 2)]})
    assert db.as_of(far, ["totals"]).to_arrow()["purchases"].to_pylist() == [2, 2]
    naive = pa.table({"user_id": ["ann"], "at": [at.replace(tzinfo=None)]})
    assert db.as_of(naive, ["totals"]).to_arrow()["spent"].to_pylist() == [10]
    zoned = naive.set_column(1, "at", naive["at"].cast(pa.timestamp("ns", "America/New_York")))
    assert db.as_of(zoned, ["totals"]).to_arrow()["spent"].to_pylist() == [10]
    # Keys are converted to the types of the view.
    texts = pa.table(
        {"user_id": pa.array(["ann"]).dictionary_encode(), "at": [f"{at:%Y-%m-%dT%H:%M:%SZ}"]}
    )
    assert db.as_of(texts, ["totals"], time="at").to_arrow()["spent"].to_pylist() == [10]
    nothing = pa.table({"user_id": pa.array([], pa.string()), "at": pa.array([], pa.date32())})
    assert db.as_of(nothing, ["totals", "week"]).fetchall() == []
    nulls = pa.table({"user_id": ["ann", None], "at": pa.array([None, at], pa.timestamp("us"))})
    assert db.as_of(nulls, ["totals", "week(n_7d)"]).to_arrow()["n_7d"].to_pylist() == [None] * 2

    early = pa.table({"user_id": ["ann", "ann"], "at": [START - HOUR, at]})
    error = refused(lambda: db.as_of(early, ["totals"]))
    assert str(error).startswith(
        'error[invalid]: view "totals" cannot be read at the times of 1 of the pairs\n'
        "detail: It can be read from 2026-03-01 00:00:00"
    )
    assert "(epoch " in str(error)
    assert db.as_of(early, ["week"]).to_arrow()["n_7d"].to_pylist() == [None, 2]
    for views, time, what in [
        (["totls"], None, 'table, stream or view "totls" does not exist'),
        (["purchases"], None, "cannot be read as of the times of pairs"),
        (["totals(spnt)"], None, 'column of view "totals" "spnt" does not exist'),
        (["totals", "totals"], None, 'column "purchases" is in view "totals" and in'),
        (["totals"], "when", 'column of the pairs "when" does not exist'),
        (["totals"], "user_id", 'column "user_id" in row 1 of the pairs'),
        ([3], None, "views are neither names nor a mapping"),
        (["totals("], None, "expected a column"),
    ]:
        error = refused(lambda views=views, time=time: db.as_of(frame, views, time=time))
        assert what in str(error), str(error)
    other = frame.rename(columns={"user_id": "who"})
    assert 'lack column "user_id" of the key' in str(refused(lambda: db.as_of(other, ["totals"])))
    assert refused(lambda: db.as_of(7, ["totals"])).code is Code.INVALID
    assert refused(lambda: db.as_of([7], ["totals"])).code is Code.INVALID
    db.sql("CREATE MATERIALIZED VIEW keyless AS SELECT user_id, amount FROM purchases")
    assert "has no key" in str(refused(lambda: db.as_of(frame, ["keyless"])))
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS n FROM purchases")
    system.step("INSERT INTO purchases VALUES (3, 'bob', 1, NULL)")
    now = pa.table({"at": [system.clock.now - HOUR, system.clock.now]})
    assert db.as_of(now, ["whole"]).to_arrow()["n"].to_pylist() == [2, 3]
    assert rows(db, "SELECT n FROM whole") == [(3,)]
    db.close()


KNOWN = {
    "by_event": "SELECT u, at, count(*) AS n FROM s GROUP BY u, at",
    "by_end": "SELECT u, window.end AS e, count(*) AS n FROM s GROUP BY u, window(at, '1 hour')",
    "by_hop_end": "SELECT u, window.end AS e, count(*) AS n FROM s"
    " GROUP BY u, window(at, '1 hour', '20 minutes')",
    "by_next_day": "SELECT u, date_add(CAST(at AS DATE), 1) AS d, count(*) AS n FROM s"
    " GROUP BY u, date_add(CAST(at AS DATE), 1)",
    "since_before": "SELECT u, at, n, sum(n) OVER w AS so_far, lag(n) OVER w AS last FROM by_event"
    " WINDOW w AS (PARTITION BY u ORDER BY at)",
    "same_time": "SELECT s.u, s.at, max(e.n) AS n FROM s JOIN by_event e"
    " ON s.u = e.u AND s.at = e.at GROUP BY s.u, s.at",
}
"""Views whose rows are known at the time of their key."""
LATER = {
    "by_start": "SELECT u, window.start AS b, count(*) AS n FROM s GROUP BY u, window(at, '1 hour')",
    "by_day": "SELECT u, CAST(at AS DATE) AS d, count(*) AS n FROM s GROUP BY u, CAST(at AS DATE)",
    "by_hour": "SELECT u, date_trunc('HOUR', at) AS h, count(*) AS n FROM s"
    " GROUP BY u, date_trunc('HOUR', at)",
    "over_start": "SELECT u, b, max(n) AS n FROM by_start GROUP BY u, b",
    "next_row": "SELECT u, at, lead(n) OVER (PARTITION BY u ORDER BY at) AS next FROM by_event",
    "all_rows": "SELECT u, at, sum(n) OVER (PARTITION BY u) AS whole FROM by_event",
    "backwards": "SELECT u, at, sum(n) OVER (PARTITION BY u ORDER BY at DESC) AS n FROM by_event",
    "named_now": "SELECT s.u, s.at, max(d.name) AS name FROM s JOIN d ON s.u = d.u GROUP BY s.u, s.at",
    "two_times": "SELECT u, at, max(paid) AS paid FROM two GROUP BY u, at",
}
"""Views whose rows may be made of later events than the time of their key."""


def test_a_row_is_answered_for_a_time_only_if_all_of_it_is_known_by_then(spark, tmp_path):
    db = headrace.connect(tmp_path / "data", spark=spark, continuous=False, partitions=PARTITIONS)
    for text in (
        "CREATE STREAM s (u STRING, at TIMESTAMP)",
        "CREATE STREAM two (u STRING, at TIMESTAMP, paid TIMESTAMP)",
        "CREATE TABLE d (u STRING PRIMARY KEY, name STRING)",
        "CREATE TABLE by_date (u STRING, day DATE, n INT, PRIMARY KEY (u, day))",
        *(f"CREATE MATERIALIZED VIEW {n} AS {q}" for n, q in (KNOWN | LATER).items()),
        "INSERT INTO s VALUES ('a', TIMESTAMP '2026-03-01 09:05:00'), ('a', TIMESTAMP '2026-03-01 09:50:00')",
    ):
        db.sql(text)
    db.flush()
    asked = [
        {"u": "a", "t": datetime(2026, 3, 1, 9, 10)},  # noqa: DTZ001
        {"u": "a", "t": datetime(2026, 3, 1, 10)},  # noqa: DTZ001
        {"u": "a", "t": datetime(2026, 3, 2)},  # noqa: DTZ001
    ]
    found = {name: db.as_of(asked, [name]).to_arrow().to_pylist() for name in KNOWN}
    assert [row["n"] for row in found["by_event"]] == [1, 1, 1]
    assert [row["n"] for row in found["by_end"]] == [None, 2, 2]
    assert [row["n"] for row in found["by_hop_end"]] == [None, 2, 1]
    assert [row["n"] for row in found["by_next_day"]] == [None, None, 2]
    assert [row["so_far"] for row in found["since_before"]] == [1, 2, 2]
    for name in (*LATER, "by_date"):
        error = refused(lambda name=name: db.as_of(asked, [name]))
        assert "cannot be read by column" in str(error), name
        assert error.hint is not None
    by_start = [row | {"b": datetime(2026, 3, 1, 9)} for row in asked]  # noqa: DTZ001
    error = refused(lambda: db.as_of(by_start[:1], ["by_start"], time="t"))
    assert 'view "by_start" cannot be read at the times' in str(error)  # before it was committed
    db.close()


def test_sql_reads_rows_as_of_their_times(spark, tmp_path):
    system = System(spark, tmp_path / "data")
    db = system.db
    system.step("INSERT INTO purchases VALUES (1, 'ann', 10, TIMESTAMP '2026-03-01 00:00:00')")
    system.step("INSERT INTO tiers VALUES ('ann', TIMESTAMP '2026-03-01 01:30:00', 'gold')")
    system.step("INSERT INTO purchases VALUES (2, 'ann', 5, TIMESTAMP '2026-03-01 00:30:00')")
    db.sql("CREATE TABLE asked (nr INT PRIMARY KEY, user_id STRING, at TIMESTAMP)")
    db.sql(
        "INSERT INTO asked VALUES (1, 'ann', TIMESTAMP '2026-03-01 01:00:00'),"
        " (2, 'ann', TIMESTAMP '2026-03-01 03:00:00'), (3, 'bob', TIMESTAMP '2026-03-01 02:00:00'),"
        " (4, NULL, TIMESTAMP '2026-03-01 03:00:00'), (5, 'ann', NULL)"
    )
    call = "AS_OF(TABLE asked, DESCRIPTOR(at), totals, week(n_7d AS n), tiers)"
    found = db.sql(f"SELECT * FROM {call} ORDER BY nr")
    assert found.columns == ("nr", "user_id", "at", "purchases", "spent", "n", "tier")
    expected = [
        (1, 1, 10, 2, None), (2, 2, 15, 2, "gold"),
        *((nr, None, None, None, None) for nr in (3, 4, 5)),
    ]  # fmt: skip
    assert [(row[0], *row[3:]) for row in found.fetchall()] == expected
    own = db.as_of(db.sql("SELECT * FROM asked ORDER BY nr").to_arrow(), "totals", time="at")
    assert [row[3] for row in own.fetchall()] == [row[1] for row in expected]
    # A relation like others: with rows that are there twice, joined, aggregated, by a job.
    twice = "(SELECT user_id, at FROM asked UNION ALL SELECT user_id, at FROM asked)"
    assert rows(
        db,
        f"SELECT a.user_id, count(*), sum(spent) FROM AS_OF({twice}, totals(spent)) AS a"
        " GROUP BY a.user_id HAVING sum(spent) > 0",
    ) == [("ann", 6, 50)]
    assert rows(
        db,
        "SELECT t.tier, f.spent, rank() OVER (ORDER BY f.spent DESC) FROM tiers t JOIN"
        " AS_OF(TABLE (SELECT * FROM asked VERSION AS OF"
        f" {db.flush()} WHERE nr < 3), totals(spent)) f USING (user_id)",
    ) == [("gold", 10, 2), ("gold", 15, 1)]
    assert rows(db, f"SELECT count(*) FROM {call} WHERE user_id = 'ann' AND at IS NOT NULL") == [
        (2,)
    ]
    assert (
        rows(db, "SELECT * FROM AS_OF((SELECT 'x' AS user_id, now() AS at WHERE false), tiers)")
        == []
    )
    # Who reads it needs the roles for all that it names.
    planner = db.parts.engine.planner
    nested = f"SELECT * FROM {call} JOIN (SELECT * FROM AS_OF(TABLE ({twice}), totals)) x ON true"
    named = planner.named(Span.whole(nested), lambda _: True)
    assert named == {"asked", "totals", "week", "tiers"}

    for text, what in [
        (f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {call}", "AS_OF is not supported here"),
        (f"SELECT * FROM {call} AS OF EPOCH 3", "AS OF at the end of a query with AS_OF"),
        ("SELECT * FROM AS_OF(asked, totals)", 'expected TABLE or "("'),
        ("SELECT * FROM AS_OF((), totals)", "expected a query"),
        ("SELECT * FROM AS_OF(TABLE asked)", 'expected ","'),
        ("SELECT * FROM AS_OF(TABLE asked, nothing)", '"nothing" does not exist'),
        ("SELECT * FROM AS_OF(TABLE nothing, totals)", "nothing"),
        ("SELECT * FROM AS_OF(TABLE asked, DESCRIPTOR(x), totals)", "column of the pairs"),
        ("SELECT * FROM AS_OF(TABLE asked, tiers, tiers)", 'column "tier" is in'),
        (
            "SELECT * FROM AS_OF((SELECT 'ann' AS user_id, DATE '2020-01-01' AS at), totals)",
            "cannot be read at the times of 1 of the pairs",
        ),
        (
            "SELECT * FROM asked a JOIN totals FOR SYSTEM_TIME AS OF a.at t ON true",
            "AS_OF(TABLE",
        ),
    ]:
        assert what in str(refused(lambda text=text: db.sql(text))), text
    db.close()


def test_a_view_says_how_long_its_states_can_be_read(spark, tmp_path):
    clock = Clock()

    def opened():
        return headrace.connect(
            tmp_path / "data", spark=spark, clock=clock, continuous=False, partitions=PARTITIONS,
            history_epochs=1,
        )  # fmt: skip

    db = opened()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
    query = "AS SELECT k, x + 1 AS y FROM t"
    db.sql(f"CREATE MATERIALIZED VIEW plain {query}")
    db.sql(f"CREATE MATERIALIZED VIEW epochs WITH (history = '5 epochs') {query}")
    db.sql(f"CREATE MATERIALIZED VIEW hours WITH (history = '3 hours') {query}")
    for value in range(10):
        clock.now += HOUR
        db.sql(f"INSERT INTO t VALUES (1, {value}) ON CONFLICT (k) DO UPDATE SET x = excluded.x")
        db.flush()
    db.parts.pump.compaction.run()
    last = db.flush()

    def readable() -> dict:
        shown = db.sql("SHOW MATERIALIZED VIEWS").fetchall()
        listed = db.sql(
            "SELECT table_name, readable_from FROM information_schema.tables"
            " WHERE table_type = 'materialized view' OR table_type LIKE '%VIEW%'"
        ).fetchall()
        assert {name: since for name, _, _, _, _, since, _ in shown} == dict(listed)
        return {name: (kept, last - since) for name, _, _, _, kept, since, _ in shown}

    assert readable() == {
        "plain": (None, 1), "epochs": ("5 epochs", 5), "hours": ("3 hours", 3),
    }  # fmt: skip
    assert rows(db, f"SELECT y FROM epochs AS OF EPOCH {last - 5}") == [(5,)]
    pairs = [{"k": 1, "at": clock.now - n * HOUR} for n in range(4)]
    assert [row[2] for row in db.as_of(pairs, "hours").fetchall()] == [10, 9, 8, 7]
    error = refused(lambda: db.sql(f"SELECT * FROM hours AS OF EPOCH {last - 4}"))
    assert f"The first epoch at which it can be read is {last - 3}." in str(error)
    assert "ALTER MATERIALIZED VIEW hours SET (history = '30 days')" in str(error)
    error = refused(lambda: db.as_of(pairs, "plain"))
    assert "SET (history = '30 days')" in str(error)

    assert (
        "are kept for 30 days"
        in db.sql("ALTER MATERIALIZED VIEW plain SET (history = '30 days')").message
    )
    db.sql("ALTER MATERIALIZED VIEW epochs SET (history = 'default')")
    db.sql("ALTER MATERIALIZED VIEW hours AS SELECT k, x + 2 AS y FROM t")
    for value in range(4):
        clock.now += HOUR
        db.sql(f"UPDATE t SET x = {value}")
        db.flush()
    db.close()
    db = opened()
    db.parts.pump.compaction.run()
    last = db.flush()
    kept = readable()
    assert kept["plain"][0] == "30 days"
    assert kept["plain"][1] > 4
    assert kept["epochs"] == (None, 1)
    assert kept["hours"][0] == "3 hours"
    assert "history = '30 days'" in str(rows(db, "SHOW CREATE TABLE plain"))
    for text, what in [
        ("SET (history = 'long')", "is neither a duration nor a number of epochs"),
        ("SET (history = '1 day', on_error = 'stop')", "is altered alone"),
        ("SET (hstory = '1 day')", 'option "hstory" cannot be altered'),
    ]:
        assert what in str(
            refused(lambda text=text: db.sql(f"ALTER MATERIALIZED VIEW plain {text}"))
        )
    error = refused(lambda: db.sql(f"CREATE MATERIALIZED VIEW w WITH (history = '-1') {query}"))
    assert "is neither a duration" in str(error)
    db.close()
