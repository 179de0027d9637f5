"""Tables that follow PostgreSQL's, against a real server: equal to it after each transaction."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType

import headrace
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.planning.catalog import SHARED_SOURCE, Declaration, Table
from headrace.storage.log import Append
from headrace.types import Column, Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers.postgres import Postgres

SETTLED = {"running", "stopped"}
pytestmark = pytest.mark.timeout(400)


class Shop:
    """One database of the server with a publication, and a database of ours that follows it."""

    def __init__(self, server: Postgres, place: Path, spark: SparkSession) -> None:
        self.server, self.place, self.spark = server, place, spark
        self.name = server.create(f"shop_{uuid4().hex[:8]}")
        self.there = server.connect(self.name)
        # A backlog would be read in small epochs, if it were of tables that are written one by one.
        self.here = headrace.connect(place, spark=spark, partitions=2, epoch_rows=20)
        self.here.sql(
            f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {server.port},"
            f" DATABASE '{self.name}', USER 'postgres')"
        )

    def reopen(self) -> None:
        self.here.close()
        self.here = headrace.connect(self.place, spark=self.spark, partitions=2)

    def run(self, *statements: str) -> None:
        """Run statements in one transaction of PostgreSQL."""
        with self.there.transaction():
            for each in statements:
                self.there.execute(each)

    def caught_up(self, source: str = "src") -> None:
        """Wait until what was committed is readable here."""
        (slot,) = [c.slot for c in self.here.parts.captures if c.name == source]
        self.there.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        wanted = self.there.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        asked = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        until(
            lambda: self.there.execute(asked, (*wanted, slot)).fetchone() == (True,), self.sources
        )
        until(lambda: {state for state, _ in self.states().values()} <= SETTLED, self.sources)
        self.here.flush()

    def sources(self) -> list[Any]:
        return self.here.sql("SHOW SOURCES").fetchall()

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {row[0]: (row[3], row[-1]) for row in self.sources()}

    def same(self, query: str) -> None:
        """Compare the rows of a query here and there."""
        here, there = self.here.sql(query).fetchall(), self.there.execute(query).fetchall()
        both = [sorted(f"{row}"[:90] for row in rows) for rows in (here, there)]
        assert both[0] == both[1], (self.sources(), self.here.sql("SHOW REJECTS").fetchall())
        assert sorted(here, key=repr) == sorted(there, key=repr)

    def close(self) -> None:
        self.here.close()
        self.there.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )
        self.there.close()


def until(met: Callable[[], bool], shown: Callable[[], Any] = lambda: None) -> None:
    """Wait until a condition is met."""
    ends = time.monotonic() + 60
    while not met():
        assert time.monotonic() < ends, shown()
        time.sleep(0.02)


@pytest.fixture
def shop(postgres_server: Postgres, tmp_path: Path, spark: SparkSession) -> Iterator[Shop]:
    made = Shop(postgres_server, tmp_path / "d", spark)
    yield made
    made.close()


SOURCE = "CREATE SOURCE src FROM POSTGRES CONNECTION pg (PUBLICATION 'p')"


def refused(shop: Shop, sql: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as error:
        shop.here.sql(sql)
    return error.value


TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN cents AS numeric(12,2);
CREATE TABLE typed (id int8 PRIMARY KEY, b bool, s smallint, r real, d double precision,
  n numeric, c cents, t text, f char(3), bin bytea, day date, at timestamp, tz timestamptz,
  u uuid, j jsonb, m mood, i interval, a int[], ta text[])
"""
TYPED = """
INSERT INTO typed VALUES ({}, true, -5, 1.5, 'NaN', 12345678901234567890.123456789, 9.99, E'a\\nb"c',
  'x', '\\x00ff', '2024-02-29', '2024-01-01 10:00', '2024-01-01 10:00+02',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{{"k": [1]}}', 'happy', '1 day 2 hours', '{{1,NULL}}',
  ARRAY['x', NULL, 'a "b", {{c}}'])
"""


@pytest.mark.long
def test_values_of_every_type_arrive_alike_by_copy_and_by_change(shop: Shop) -> None:
    shop.run(TYPES, "CREATE PUBLICATION p FOR ALL TABLES", TYPED.format(1))
    shop.run("INSERT INTO typed (id) VALUES (2)")
    shop.here.sql(f"{SOURCE} FOR TABLES (typed)")
    shop.run(TYPED.format(3), "INSERT INTO typed (id) VALUES (4)")
    shop.run("INSERT INTO typed (id, n) VALUES (5, 'NaN'), (6, 1e-12)")
    shop.caught_up()
    empty = (None,) * 18
    full = (
        *(True, -5, 1.5, "NaN", Decimal("12345678901234567890.123456789"), Decimal("9.99")),
        *('a\nb"c', "x  ", b"\0\xff", date(2024, 2, 29), datetime(2024, 1, 1, 10)),  # noqa: DTZ001
        datetime(2024, 1, 1, 8, tzinfo=UTC),
        *("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"k": [1]}', "happy", "P1DT2H"),
        *([1, None], ["x", None, 'a "b", {c}']),
    )
    found = [
        tuple("NaN" if value != value else value for value in row)  # noqa: PLR0124
        for row in shop.here.sql("SELECT * FROM typed ORDER BY id").fetchall()
    ]
    assert found == [(1, *full), (2, *empty), (3, *full), (4, *empty)]
    rejects = shop.here.sql("SHOW REJECTS FOR typed").fetchall()
    assert sorted((row[3], row[5].split(",")[0]) for row in rejects) == [
        ("n", "id=5"),
        ("n", "id=6"),
    ]
    types = dict(shop.here.columns("typed"))
    assert (types["n"], types["c"], types["m"], types["at"]) == (
        *("decimal(38,9)", "decimal(12,2)", "string", "timestamp_ntz"),
    )


TABLES = [
    "CREATE TABLE orders (id int PRIMARY KEY, who text, total numeric(10,2), note text)",
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    "CREATE TABLE lines (order_id int, line int, qty int, note text, PRIMARY KEY (order_id, line))",
    "CREATE TABLE visits (who text, page text)",
    "ALTER TABLE visits REPLICA IDENTITY FULL",
    "ALTER TABLE visits ALTER page SET STORAGE EXTERNAL",
    "CREATE PUBLICATION p FOR TABLE orders, lines, visits",
]
JOINED = """
SELECT who, count(*) AS n, sum(qty) AS qty FROM orders JOIN lines ON order_id = id GROUP BY who
"""
CHECKED = ("SELECT * FROM orders", "SELECT * FROM lines", "SELECT * FROM visits")


def workload(chance: random.Random) -> list[str]:
    """Return the statements of a transaction, with savepoints that are rolled back."""

    def one() -> str:
        key, other = chance.randrange(12), chance.randrange(12)
        long = f"repeat('{chance.choice('xyz')}', {chance.choice([3, 9000])})"
        upsert = "ON CONFLICT (id) DO UPDATE SET total = excluded.total"
        again = f"AND NOT EXISTS (SELECT FROM orders WHERE id = {other})"
        return chance.choice(
            [
                f"INSERT INTO orders VALUES ({key}, 'w{other % 3}', {other}.5, {long}) {upsert}",
                f"UPDATE orders SET who = 'w{other % 4}' WHERE id = {key}",
                f"UPDATE orders SET id = {other} WHERE id = {key} {again}",
                f"DELETE FROM orders WHERE id = {key}",
                f"INSERT INTO lines VALUES ({key}, {other % 3}, 1, {long}) ON CONFLICT DO NOTHING",
                f"UPDATE lines SET qty = qty + 1 WHERE order_id = {key}",
                f"UPDATE lines SET line = line + 10 WHERE order_id = {key} AND line < 3",
                f"DELETE FROM lines WHERE order_id = {key}",
                f"INSERT INTO visits SELECT 'w{key % 3}', {long} FROM generate_series(1, 2)",
                f"UPDATE visits SET who = 'w{other % 3}' WHERE who = 'w{key % 3}'",
                f"DELETE FROM visits WHERE who = 'w{key % 3}'",
                chance.choice(["TRUNCATE lines", "TRUNCATE visits", "SELECT 1", "SELECT 1"]),
            ]
        )

    found = []
    for at in range(chance.randrange(1, 5)):
        found.append(one())
        if chance.random() < 0.3:
            found += [f"SAVEPOINT s{at}", one(), f"ROLLBACK TO s{at}"]
        if chance.random() < 0.2:
            found += [f"SAVEPOINT k{at}", one(), f"RELEASE k{at}"]
    return found


@pytest.mark.parametrize("seed", choose([3], range(4)))
def test_tables_and_a_join_are_those_of_postgresql_after_each_transaction(
    shop: Shop, seed: int
) -> None:
    chance = random.Random(seed)
    shop.run(*TABLES)
    for _ in range(15):
        shop.run(*workload(chance))
    shop.here.sql(SOURCE)
    for name in ("orders", "lines", "visits"):
        shop.here.sql(f"CREATE TABLE {name} FROM SOURCE src (REFERENCE public.{name})")
    shop.here.sql(f"CREATE MATERIALIZED VIEW joined AS {JOINED}")
    for at in range(choose(6, 60)):
        for _ in range(choose(4, 2)):
            shop.run(*workload(chance))
        with shop.there.transaction(force_rollback=True):
            shop.there.execute("DELETE FROM orders")
        if at == 4:
            shop.run("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7")
        if at == 7:
            shop.reopen()
        if at == 9:
            shop.there.close()
            shop.server.stop("immediate")
            shop.server.start()
            shop.there = shop.server.connect(shop.name)
        shop.caught_up()
        for query in CHECKED:
            shop.same(
                query.replace("SELECT * FROM orders", "SELECT id, who, total, note FROM orders")
            )
        here = shop.here.sql("SELECT * FROM joined").fetchall()
        assert sorted(here) == sorted(shop.there.execute(JOINED).fetchall())
    assert {verdict for *_, verdict in shop.here.verify()} == {"equal to batch"}
    (added,) = [row for row in shop.here.sql("SHOW REJECTS").fetchall() if row[3] == "extra"]
    assert added[0] == "orders"


@pytest.mark.long
def test_a_copy_during_writes_meets_the_changes_and_no_reader_sees_half_of_a_transaction(
    shop: Shop,
) -> None:
    shop.run(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT n, 10 FROM generate_series(0, 499) n",
        "INSERT INTO b SELECT n, 10 FROM generate_series(0, 499) n",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    stop = threading.Event()

    def transfer(seed: int) -> None:
        chance = random.Random(seed)
        with shop.server.connect(shop.name) as session:
            while not stop.is_set():
                key = 100 * seed + chance.randrange(100)
                with session.transaction():
                    session.execute("UPDATE a SET v = v - 1 WHERE id = %s", (key,))
                    session.execute("UPDATE b SET v = v + 1 WHERE id = %s", (key,))
                    if chance.random() < 0.1:
                        session.execute("DELETE FROM a WHERE id = %s", (key,))
                        session.execute("INSERT INTO a VALUES (%s, 20 - %s)", (key, 0))
                        session.execute(
                            "UPDATE b SET v = 20 - a.v FROM a WHERE a.id = b.id AND b.id = %s",
                            (key,),
                        )

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        shop.here.sql(f"{SOURCE} FOR TABLES (a)")
        until(lambda: shop.states()["a"][0] == "running", shop.sources)
        shop.here.sql("CREATE TABLE b FROM SOURCE src (REFERENCE b)")
        until(lambda: shop.states()["b"][0] == "running", shop.sources)
        shop.here.sql(
            "CREATE MATERIALIZED VIEW total AS SELECT sum(a.v + b.v) AS total, count(*) AS n"
            " FROM a JOIN b ON a.id = b.id"
        )
        for _ in range(choose(4, 60)):
            shop.here.flush()
            assert shop.here.sql("SELECT * FROM total").fetchall() == [(10_000, 500)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    shop.caught_up()
    shop.same("SELECT * FROM a")
    shop.same("SELECT * FROM b")


def test_what_cannot_be_followed_is_refused_when_it_is_created(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE keyless (v int)",
        "CREATE TABLE other (id int PRIMARY KEY, at point, n int)",
        "CREATE TABLE unpublished (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY HASH (id)",
        "CREATE PUBLICATION p FOR TABLE keyless, other",
        "CREATE PUBLICATION part FOR TABLE other WITH (publish = 'insert')",
        "CREATE ROLE reader LOGIN",
    )
    for sql, primary in [
        (SOURCE.replace("'p'", "'q'"), 'publication "q" does not exist'),
        (SOURCE.replace("'p'", "'part'"), 'publication "part" does not contain all changes'),
        (
            f"{SOURCE} FOR TABLES (keyless)",
            'changes of table "public.keyless" do not identify rows',
        ),
        (f"{SOURCE} FOR ALL TABLES", 'changes of table "public.keyless" do not identify rows'),
        (f"{SOURCE} FOR TABLES (other, public.other AS o)", "a table of PostgreSQL is given twice"),
        (SOURCE.replace("pg (", "gp ("), 'connection "gp" does not exist'),
        (SOURCE.replace(")", ", SLOT 'Bad')"), "'Bad' is not the name of a replication slot"),
    ]:
        assert refused(shop, sql).primary.startswith(primary), sql
    assert shop.there.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
    shop.here.sql(SOURCE)
    for columns, reference, primary in [
        ("", "othr", 'table "public.othr" does not exist in PostgreSQL'),
        ("", "parted", 'table "public.parted" is partitioned'),
        ("", "unpublished", 'table "public.unpublished" is not in publication "p"'),
        ("", "other", 'column "at" of table "public.other": PostgreSQL\'s type point has no exact'),
        ("(id INT, m INT)", "other", 'table "public.other" publishes no column "m"'),
        ("(id INT, n STRING, at INT)", "other", 'column "at" is point in PostgreSQL'),
        ("(n INT)", "other", 'column "id" of the key of table "public.other" is not declared'),
        ("(id INT, n INT PRIMARY KEY)", "other", 'the key of table "public.other" is (id)'),
        (
            "(id INT, m AS id + 1)",
            "other",
            'column "m" of a table FROM SOURCE has more than a type',
        ),
    ]:
        error = refused(shop, f"CREATE TABLE t {columns} FROM SOURCE src (REFERENCE {reference})")
        assert error.primary.startswith(primary)
        assert error.span is not None
    assert refused(shop, "DROP CONNECTION pg").primary == 'connection "pg" is used by src'
    assert refused(shop, SOURCE).primary == 'source "src" exists already'
    shop.here.sql("CREATE TABLE t (id BIGINT, at STRING) FROM SOURCE src (REFERENCE other)")
    twice = refused(shop, "CREATE TABLE u (id INT) FROM SOURCE src (REFERENCE public.other)")
    assert twice.primary == 'table "t" follows that table of source "src" already'
    assert shop.here.columns("t") == [("id", "bigint"), ("at", "string")]
    shop.run("INSERT INTO other VALUES (1, '(1,2)', 3)")
    shop.caught_up()
    assert shop.here.sql("SELECT * FROM t").fetchall() == [(1, "(1,2)")]
    assert "gets its rows from elsewhere" in refused(shop, "INSERT INTO t VALUES (2, 'x')").primary


@pytest.mark.long
def test_a_table_that_changes_stops_alone_and_is_read_anew_when_it_is_replaced(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE a (id int PRIMARY KEY, v int, w int)",
        "CREATE TABLE b (id int PRIMARY KEY, v int)",
        "CREATE TABLE c (id int PRIMARY KEY, v int)",
        "CREATE PUBLICATION p FOR TABLE a, b, c",
    )
    shop.here.sql(f"{SOURCE} FOR ALL TABLES")
    shop.run("INSERT INTO a VALUES (1, 1, 1)", "INSERT INTO b VALUES (1, 1)")
    shop.caught_up()
    shop.run(
        "ALTER TABLE a DROP COLUMN w", "INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, 2)"
    )
    shop.run("ALTER PUBLICATION p DROP TABLE c")
    shop.run("INSERT INTO c VALUES (1, 1)")
    shop.run("ALTER PUBLICATION p ADD TABLE c")
    shop.run("ALTER TABLE b ALTER v TYPE bigint", f"INSERT INTO b VALUES (3, {2**40})")
    shop.caught_up()
    states = shop.states()
    assert (states["a"][0], states["b"], states["src"][0]) == (
        "stopped",
        ("running", None),
        "running",
    )
    assert '"w" was dropped or renamed' in (states["a"][1] or "")
    assert states["c"][0] == "stopped"
    assert "taken out of the publication" in (states["c"][1] or "")
    shop.reopen()
    assert shop.here.sql("SELECT * FROM b ORDER BY id").fetchall() == [(1, 1), (2, 2)]
    assert len(shop.here.sql("SHOW REJECTS FOR b").fetchall()) == 1
    assert shop.states()["a"][0] == "stopped"
    for name in "abc":
        shop.here.sql(f"CREATE OR REPLACE TABLE {name} FROM SOURCE src (REFERENCE {name})")
    shop.caught_up()
    for name in "abc":
        shop.same(f"SELECT * FROM {name}")
    shop.here.sql("DROP TABLE c")
    shop.run("INSERT INTO c VALUES (9, 9)", "INSERT INTO a VALUES (9, 9)")
    shop.caught_up()
    shop.same("SELECT * FROM a")


@pytest.mark.long
def test_a_user_with_few_rights_is_enough_and_a_password_that_changes_is_waited_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"follower_{shop.name}"
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_FOLLOWER", "one")
    shop.run(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE a",
        f"CREATE ROLE {user} LOGIN REPLICATION PASSWORD 'one'",
    )
    shop.here.sql(
        "CREATE SECRET pw FROM ENV 'HEADRACE_TEST_PASSWORD_OF_FOLLOWER';"
        f" CREATE CONNECTION few TO POSTGRES (HOST '127.0.0.1', PORT {shop.server.port},"
        f" DATABASE '{shop.name}', USER '{user}', PASSWORD SECRET pw);"
        f" {SOURCE.replace('CONNECTION pg', 'CONNECTION few')}"
    )
    shop.caught_up()
    assert shop.states() == {"src": ("running", None)}
    table = "CREATE TABLE a FROM SOURCE src (REFERENCE a)"
    assert "GRANT SELECT" in (refused(shop, table).hint or "")
    shop.run(f"GRANT SELECT ON a TO {user}", "INSERT INTO a VALUES (1)")
    shop.here.sql(table)
    shop.caught_up()
    shop.same("SELECT * FROM a")
    gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + user + "'"
    shop.run(f"ALTER ROLE {user} PASSWORD 'two'", gone, "INSERT INTO a VALUES (2)")
    until(lambda: "password" in (shop.states()["src"][1] or ""), shop.sources)
    assert shop.states()["src"][0] == "retrying"
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_FOLLOWER", "two")
    shop.caught_up()
    shop.same("SELECT * FROM a")
    shop.here.sql("DROP SOURCE src CASCADE")
    shop.run(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


def test_a_slot_or_publication_that_is_gone_is_said_and_dropping_the_source_drops_its_slot(
    shop: Shop,
) -> None:
    shop.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    shop.here.sql(f"{SOURCE} FOR ALL TABLES")
    shop.run("INSERT INTO a VALUES (1)")
    shop.caught_up()
    shop.run("DROP PUBLICATION p", "INSERT INTO a VALUES (2)")
    until(lambda: shop.states()["src"][0] == "stopped", shop.sources)
    assert "publication" in (shop.states()["src"][1] or "")
    assert refused(shop, "DROP SOURCE src").primary == 'source "src" is used by "a"'
    message = str(shop.here.sql("DROP SOURCE src CASCADE"))
    assert '"a"' in message
    assert "replication slot" in message
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert shop.there.execute(slots).fetchall() == []
    shop.run("CREATE PUBLICATION p FOR ALL TABLES")
    shop.here.sql(SOURCE.replace(")", ", SLOT 'mine_too')"))
    shop.here.sql("CREATE TABLE a FROM SOURCE src (REFERENCE a)")
    shop.caught_up()
    shop.same("SELECT * FROM a")
    shop.here.close()
    shop.run("SELECT pg_drop_replication_slot('mine_too')", "INSERT INTO a VALUES (3)")
    shop.reopen()
    until(lambda: shop.states()["src"][0] == "stopped", shop.sources)
    assert '"mine_too" does not exist' in (shop.states()["src"][1] or "")
    assert shop.here.sql("SELECT count(*) FROM a").fetchall() == [(2,)]
    shop.here.sql("DROP SOURCE src CASCADE; DROP CONNECTION pg")
    assert refused(shop, "DROP SOURCE src").code is Code.INVALID


@pytest.mark.long
def test_an_epoch_reads_all_that_has_arrived_of_tables_of_one_source(
    tmp_path: Path, spark: SparkSession
) -> None:
    shared = (("connector", "postgres"), (SHARED_SOURCE, "src"), ("reference", "public.t"))
    with headrace.connect(
        tmp_path / "d", spark=spark, partitions=1, continuous=False, epoch_rows=2
    ) as db:
        parts = db.parts
        for name, source in [("a", shared), ("b", shared), ("alone", ())]:
            schema = Schema((Column("id", IntegerType(), nullable=False),))
            id_, declaration = parts.ledger.ids.relation(), Declaration(source=source)
            parts.definer.create(Table(id_, name, schema, ("id",), None, declaration))
        ids = {table.name: table.id for table in parts.reader.catalog}
        for at in range(3):
            rows = pa.table({"id": pa.array([at, at + 9], pa.int32())})
            rows = rows.append_column(WEIGHT, pa.array([1, 1]))
            parts.log.land_together([], [Append(id_, rows) for id_ in ids.values()])
        ranges = parts.loop.poll().ranges
        assert {name: ranges[ids[name]].rows for name in "ab"} == {"a": 6, "b": 6}
        assert "alone" not in {name for name, id_ in ids.items() if id_ in ranges}
        assert db.flush() == parts.ledger.head.epoch
        counts = [db.sql(f"SELECT count(*) FROM {name}").fetchall() for name in ids]
        assert counts == [[(6,)]] * 3
