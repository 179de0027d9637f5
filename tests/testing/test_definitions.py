"""Definitions of a project, without the systems that they name; and the clock of a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import HeadraceError
from headrace.planning.sql import CreateStream, CreateTable
from headrace.testing.clock import ControlledClock, instant_of, length_of, with_clock
from headrace.testing.database import definitions_of

KAFKA = "connector = 'kafka', topic = 'o', 'properties.bootstrap.servers' = 'b:9092'"


def names(definitions):
    return [each.name for each in definitions]


def test_definitions_come_after_what_they_read_whatever_the_order_of_files(tmp_path):
    (tmp_path / "a.sql").write_text("CREATE MATERIALIZED VIEW top AS SELECT n FROM gold.mid m;")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mid.sql").write_text(
        "CREATE VIEW gold.mid AS SELECT twice(orders.n) AS n FROM `Orders` JOIN other USING (n);"
    )
    (tmp_path / "z.sql").write_text(
        "CREATE STREAM orders (n INT, top INT); CREATE TABLE other (n INT PRIMARY KEY);"
        " CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2; INSERT INTO other VALUES (1);"
        " CREATE INDEX i ON other (n); CREATE VIEW unread AS SELECT 1 AS one;"
    )
    (tmp_path / "z.test.sql").write_text("this is no definition")
    found = definitions_of([tmp_path])
    order = names(found.every())
    assert set(order) == {"orders", "other", "twice", "gold.mid", "top", "unread"}
    assert order.index("orders") < order.index("gold.mid") < order.index("top")
    assert order.index("twice") < order.index("gold.mid")
    assert "unread" not in names(found.below(["top"]))


def test_a_column_named_like_a_view_that_reads_it_is_no_cycle():
    found = definitions_of(
        [],
        "CREATE MATERIALIZED VIEW spent AS SELECT user, sum(amount) AS spent FROM t GROUP BY user;"
        "CREATE TABLE t (user STRING, amount INT);"
        "CREATE MATERIALIZED VIEW users AS SELECT users, spent FROM (SELECT user AS users, spent"
        " FROM spent) x;",
    )
    assert names(found.every()) == ["t", "spent", "users"]
    with pytest.raises(HeadraceError, match="reads itself"):
        definitions_of(
            [], "CREATE VIEW a AS SELECT 1 FROM b; CREATE VIEW b AS SELECT 1 FROM a"
        ).every()


def test_a_stream_of_another_system_becomes_a_plain_one():
    found = definitions_of(
        [],
        "CREATE STREAM s (id STRING, at TIMESTAMP METADATA FROM 'timestamp', big AS id,"
        f" WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ({KAFKA}, format = 'json',"
        " retention = '90 days') DEDUPLICATE ON (id) ALLOWED LATENESS INTERVAL '1' HOUR ON ERROR"
        " STOP;"
        f"CREATE TABLE t (id INT PRIMARY KEY) WITH ({KAFKA}, format = 'debezium-json');"
        "CREATE TABLE u (id INT PRIMARY KEY) FROM SOURCE shop (REFERENCE public.u);",
    )
    stream, table, captured = (found.named(name).created for name in ("s", "t", "u"))
    assert isinstance(stream, CreateStream)
    assert [(o.key, o.value) for o in stream.options] == [("topic", "o"), ("retention", "90 days")]
    assert [(c.name, c.metadata, bool(c.computed)) for c in stream.columns] == [
        ("id", None, False), ("at", None, False), ("big", None, True),
    ]  # fmt: skip
    assert stream.watermark is not None
    assert (stream.taken.unique, stream.taken.stops) == (("id",), False)
    assert isinstance(table, CreateTable)
    assert [o.key for o in table.options] == ["topic"]
    assert isinstance(captured, CreateTable)
    assert (captured.captured, captured.primary_key) == (None, ("id",))


def test_sinks_into_tables_are_kept_and_others_left_out():
    found = definitions_of(
        [],
        "CREATE TABLE t (n INT); CREATE TABLE u (n INT);"
        "CREATE MATERIALIZED VIEW v AS SELECT n FROM t; CREATE SINK a INTO u FROM v;"
        f"CREATE SINK b FROM v WITH ({KAFKA}); CREATE VIEW w AS SELECT n FROM u;",
    )
    assert set(names(found.below(["w"]))) == {"t", "u", "v", "a", "w"}
    assert names(found.below(["v"])) == ["t", "v"]


def test_a_table_whose_columns_its_source_knows_is_declared_by_the_test():
    text = (
        "CREATE TABLE t FROM SOURCE shop (REFERENCE public.t); CREATE TABLE o (n INT);"
        "CREATE VIEW v AS SELECT id FROM t; CREATE VIEW w AS SELECT n FROM o;"
    )
    found = definitions_of([], text)
    assert names(found.below(["w"])) == ["o", "w"]
    with pytest.raises(HeadraceError, match='columns of table "t" are not known'):
        found.every()
    (declared,) = definitions_of([], "CREATE TABLE t (id INT PRIMARY KEY)").every()
    assert names(found.replaced_by(declared.statements).below(["v"])) == ["t", "v"]


def test_a_name_that_is_defined_twice_is_refused_with_both_places(tmp_path):
    for name in ("a.sql", "b.sql"):
        (tmp_path / name).write_text("\nCREATE TABLE t (n INT);")
    with pytest.raises(HeadraceError, match='"t" is defined twice') as caught:
        definitions_of([tmp_path])
    assert caught.value.detail == f"It is also defined in {tmp_path}/a.sql, line 2."
    assert f"{tmp_path}/b.sql:2:14" in str(caught.value)
    (tmp_path / "b.sql").write_text("CREATE OR REPLACE TABLE t (m INT);")
    assert "m" in definitions_of([tmp_path]).named("t").created.span.source
    with pytest.raises(HeadraceError, match="there are no definitions"):
        definitions_of([tmp_path / "c.sql"])


def test_alterations_belong_to_what_they_alter():
    found = definitions_of([], "CREATE STREAM s (n INT); ALTER STREAM s ADD COLUMN m INT;")
    assert len(found.named("s").statements) == 2
    with pytest.raises(HeadraceError, match='"x" does not exist'):
        definitions_of([], "ALTER STREAM x ADD COLUMN m INT")


# -- the clock


def test_the_clock_moves_forward_only_and_ends_epochs_at_both_times():
    times = []
    clock = ControlledClock()
    clock.ends_epoch = lambda: times.append(clock.now.isoformat(" ")[:16])
    clock.advance("1 hour 30 minutes")
    clock.set("2026-01-02")
    assert times == ["2026-01-01 00:00", "2026-01-01 01:30", "2026-01-01 01:30", "2026-01-02 00:00"]
    assert clock.micros() == 1_767_312_000_000_000
    with pytest.raises(HeadraceError, match="cannot go back from 2026-01-02 00:00:00"):
        clock.set("2026-01-01 23:00")


def test_times_and_lengths_of_time_are_read():
    assert length_of("10 minutes") == timedelta(minutes=10)
    assert length_of("INTERVAL '1' DAY") == timedelta(days=1)
    assert length_of(timedelta(seconds=5)) == timedelta(seconds=5)
    assert instant_of("2026-03-01 10:00:00+02:00") == datetime(2026, 3, 1, 8, tzinfo=UTC)
    for wrong in ("soon", "-1 hour", "0 seconds", ""):
        with pytest.raises(HeadraceError, match="is not a length of time"):
            length_of(wrong)
    with pytest.raises(HeadraceError, match="is not a time"):
        instant_of("yesterday")


def test_statements_of_a_test_read_its_clock_and_definitions_do_not():
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert with_clock("INSERT INTO t VALUES (now(), current_date)", now) == (
        "INSERT INTO t VALUES (TIMESTAMP '2026-01-02 03:04:05Z', DATE '2026-01-02')"
    )
    for same in (
        "CREATE VIEW v AS SELECT now() AS n",
        "SELECT 'now()' AS a, t.now, now FROM t -- now()",
        "SELECT current_date(3) FROM t.current_timestamp",
    ):
        assert with_clock(same, now) == same
