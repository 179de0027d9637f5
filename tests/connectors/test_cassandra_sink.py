"""Cassandra: the rows of a table are the view's, whatever is killed, late, lost or refused."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from connectors import sink_histories as histories
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors import SinkContext
from headrace.io.connectors.cassandra.access import Cells, targets
from headrace.io.connectors.cassandra.sink import CassandraStore, Options, check, opened
from headrace.io.connectors.options import Given, read_options
from headrace.io.connectors.stores import StoreSink
from headrace.types import Column, Epoch, Schema, to_arrow
from servers.cassandra import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers.cassandra import Cassandra

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOMENT = dt.datetime(2026, 1, 31, 10, 15, 0, 500000, tzinfo=dt.UTC)
VALUES: list[tuple[t.DataType, list[Any]]] = [
    (t.BooleanType(), [True, False]),
    (t.ShortType(), [-(1 << 15), 7]),
    (t.LongType(), [-(1 << 63), 7]),
    (t.DoubleType(), [float("inf"), -0.5]),
    (t.DecimalType(12, 2), [Decimal("-1.50"), Decimal("0.00")]),
    (t.StringType(), ["", "ß\n"]),
    (t.BinaryType(), [b"", b"\x00\xff"]),
    (t.DateType(), [dt.date(1, 1, 1), dt.date(2026, 1, 31)]),
    (t.TimeType(), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    (t.TimestampType(), [MOMENT, EPOCH - dt.timedelta(milliseconds=1)]),
    (t.TimestampNTZType(), [MOMENT.replace(tzinfo=None), EPOCH.replace(year=1969, tzinfo=None)]),
    (t.ArrayType(t.IntegerType()), [[], [1, 2]]),
    (t.ArrayType(t.DateType()), [[dt.date(2026, 1, 31), None], []]),
    (t.MapType(t.StringType(), t.LongType()), [[], [("a", 1)]]),
    (
        t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]),
        [{"a": None, "b": "x"}, {"a": 1, "b": None}],
    ),
]


def cases() -> Iterator[tuple[t.DataType, str, list[Any]]]:
    for type_, values in VALUES:
        for target in targets(type_):
            yield type_, target, values


@pytest.fixture
def node(cassandra_node: Cassandra) -> Cassandra:
    return cassandra_node


def options(node: Cassandra, table: str, **given: str) -> Options:
    all_ = {"hosts": "127.0.0.1", "port": str(node.port), "user": USER, "password": "pw"}
    all_ |= {"keyspace": "k", "table": table, **given}
    listed = [Given(key, value, secret=key == "password") for key, value in all_.items()]
    return read_options(Options, listed, "a cassandra sink")


def context(directory: Path, schema: Schema | None = None) -> SinkContext:
    given = histories.context(directory, {"pw": PASSWORD})
    return (
        given
        if schema is None
        else SinkContext(directory, schema, ("id",), given.secrets, given.identity)
    )


def rows(node: Cassandra, table: str) -> Counter[Any]:
    found = node.query(f"SELECT id, name, amount, at, ok FROM k.{table}")
    return Counter(
        (each[0], each[1], each[2], EPOCH + dt.timedelta(microseconds=each[3]), each[4])
        for each in found
    )


@pytest.fixture
def table(node: Cassandra) -> str:
    name = f"t{uuid4().hex[:8]}"
    node.query(
        f"CREATE TABLE k.{name}"
        " (id bigint PRIMARY KEY, name text, amount decimal, at bigint, ok boolean, other text)",
    )
    return name


@pytest.mark.parametrize(("type_", "target", "values"), list(cases()))
def test_values_are_written_and_read_back_as_each_type_that_they_may_have(
    type_: t.DataType, target: str, values: list[Any]
) -> None:
    cells = Cells(Column("c", type_), "c", target)
    given = pa.array([*values, None], to_arrow(type_))
    written = cells.written(pa.chunked_array([given]))
    if target == "timestamp":
        written = [None if v is None else (EPOCH + dt.timedelta(milliseconds=v)).replace(tzinfo=None) for v in written]  # fmt: skip
    elif target == "date":
        written = [None if v is None else _Day(v - (1 << 31)) for v in written]
    elif target == "time":
        written = [None if v is None else _OfDay(v) for v in written]
    elif target.startswith("frozen<map"):
        written = [None if v is None else dict(v) for v in written]
    assert cells.read(written).equals(given)


class _Day:
    def __init__(self, days: int) -> None:
        self.days_from_epoch = days


class _OfDay:
    def __init__(self, nanoseconds: int) -> None:
        self.nanosecond_time = nanoseconds


def test_a_value_that_cassandra_would_change_is_refused() -> None:
    cells = Cells(Column("c", t.TimestampType()), "c", "timestamp")
    moments = [MOMENT, MOMENT + dt.timedelta(microseconds=1), None]
    found = cells.refused(pa.chunked_array([pa.array(moments, pa.timestamp("us", "UTC"))]))
    assert found is not None
    assert found[1] == [1]
    lists = Cells(Column("c", t.ArrayType(t.LongType())), "c", "frozen<list<bigint>>")
    assert lists.refused(pa.array([[1], [], None], pa.list_(pa.int64()))) is None
    found = lists.refused(pa.array([[1], [], None, [2, None]], pa.list_(pa.int64())))
    assert found is not None
    assert found[1] == [3]


@pytest.mark.long
@pytest.mark.parametrize("joins", [False, True])
def test_the_table_has_the_rows_however_often_both_sides_are_killed(
    node: Cassandra, table: str, tmp_path: Path, joins: Any
) -> None:
    given = options(node, table)
    check(given, context(tmp_path))

    def killed(number: int) -> None:
        if number == 3:
            node.stop(crash=True)
            with pytest.raises(HeadraceError) as error:
                opened(given, context(tmp_path)).durable()
            assert error.value.code is Code.UNAVAILABLE
            node.start()

    def read() -> Counter[Any]:
        return rows(node, table)

    histories.prove(
        lambda: opened(given, context(tmp_path)),
        read,
        seed=3 + joins,
        settings=DeliverySettings(part_rows=6, joins=joins),
        killed=killed,
    )
    sink = opened(given, context(tmp_path))
    stored = sink.stored()
    assert stored is not None
    assert Counter(tuple(r.values()) for part in stored for r in part.to_pylist()) == read()
    sink.clear()
    assert not read()
    sink.close()


@pytest.mark.long
def test_what_is_late_loses_whatever_the_clock_says(
    node: Cassandra, table: str, tmp_path: Path
) -> None:
    given = options(node, table)
    check(given, context(tmp_path))
    first, second = (histories.row(random.Random(seed), 1) for seed in (1, 2))
    now = [2_000_000_000_000_000]
    sink = StoreSink(CassandraStore(given, context(tmp_path), clock=lambda: now[0]))
    sink.write(Epoch(1), [histories.table([(first, 1)])])
    late = sink._session
    now[0] = 1_000_000_000_000_000  # the clock goes back
    sink.write(Epoch(2), [histories.table([(first, -1)])])
    assert late is not None
    late.cluster.session.execute(late.upsert, (*(each for each in _cells(late, first)), 2_000_000_000_000_000))  # fmt: skip
    assert not rows(node, table)
    sink.write(Epoch(3), [histories.table([(second, 1)])])
    assert rows(node, table) == Counter([second])
    node.query(f"UPDATE k.{table} SET name = 'by hand' WHERE id = 1")  # by the real clock
    now[0] = 4_000_000_000_000_000
    sink.write(Epoch(4), [histories.table([(second, 1)])])
    assert rows(node, table) == Counter([second])
    other = opened(given, context(tmp_path))
    other.write(Epoch(5), [histories.table([(first, 1)])])
    with pytest.raises(HeadraceError) as error:
        sink.write(Epoch(5), [histories.table([(second, 1)])])
    assert error.value.primary.startswith("another session writes")
    sink.close()
    other.close()


def _cells(session: Any, row: histories.Row) -> Iterator[Any]:
    part = histories.table([(row, 1)])
    for each in session.columns.cells:
        yield from each.written(part[each.column.name])


@pytest.mark.long
def test_rows_that_cassandra_cannot_have_are_refused_each_with_the_reason(
    node: Cassandra, tmp_path: Path
) -> None:
    schema = Schema((Column("id", t.StringType()), Column("l", t.ArrayType(t.LongType()))))
    name = f"t{uuid4().hex[:8]}"
    given, whole = options(node, name, create_table="true"), context(tmp_path, schema)
    tries = replace(whole, tries=True)
    check(given, tries)  # it would be created
    with pytest.raises(HeadraceError):
        check(options(node, name), tries)
    check(given, whole)
    check(given, tries)
    sink = opened(given, whole)
    ids = ["a", "", None, "d", "e", "large", "k" * 70_000]
    lists = [[1], [2], [3], [4, None], [], [7] * 500_000, [8]]
    part = pa.table({"id": ids, "l": pa.array(lists, pa.list_(pa.int64())), WEIGHT: [1] * 7})
    refused = sink.write(Epoch(7), [part])
    why = {json.loads(each.row)["row"]["id"]: each.why for each in refused}
    assert set(why) == {"", None, "d", "large", ids[-1]}
    assert why[None] == "a column of its key is NULL"
    assert "Key may not be empty" in why[""]
    stored = sink.stored()
    assert stored is not None
    found = {row["id"]: row["l"] for each in stored for row in each.to_pylist()}
    assert found == {"a": [1], "e": []}
    again = opened(given, whole)
    assert again.durable() == 7
    assert again.last_refused() == refused
    node.query(f"DROP TABLE k.{name}")
    with pytest.raises(HeadraceError) as error:  # no row is to blame
        again.write(Epoch(8), [part])
    assert "does not exist" in error.value.primary
    again.close()
    sink.close()


@pytest.mark.long
def test_what_does_not_fit_is_refused_when_the_sink_is_created(
    node: Cassandra, table: str, tmp_path: Path
) -> None:
    def refused(name: str, schema: Schema | None = None, **given: str) -> HeadraceError:
        with pytest.raises(HeadraceError) as error:
            check(options(node, name, **given), context(tmp_path, schema))
        assert error.value.code is Code.INVALID
        assert error.value.hint
        return error.value

    assert "does not exist" in refused("nope").primary
    assert "CREATE KEYSPACE" in str(refused("nope", keyspace="nope").hint)
    wrong = Schema((Column("id", t.LongType()), Column("ok", t.LongType())))
    assert 'column "ok" of type BIGINT cannot' in refused(table, wrong).primary
    more = Schema((Column("id", t.LongType()), Column("nope", t.LongType())))
    assert "Add it, as bigint" in str(refused(table, more).hint)
    node.query(f"CREATE TABLE k.{table}x (id bigint, name text, PRIMARY KEY (name))")
    two = Schema((Column("id", t.LongType()), Column("name", t.StringType())))
    assert 'column "id" is not in the primary key' in refused(f"{table}x", two).primary
    assert "have no column" in refused(f"{table}x", Schema((Column("id", t.LongType()),))).primary
    given = options(node, table)
    with pytest.raises(HeadraceError) as error:
        check(given, histories.context(tmp_path, {"pw": "wrong"}))
    assert error.value.code is Code.INVALID
    assert "Correct the connection's user" in str(error.value.hint)
    check(given, context(tmp_path))
    sink = opened(given, context(tmp_path))
    sink.write(Epoch(3), [histories.table([(histories.row(random.Random(1), 1), 1)])])
    other = SinkContext(tmp_path, histories.SCHEMA, ("id",), context(tmp_path).secrets, "other/1")
    with pytest.raises(HeadraceError) as error:
        check(given, other)
    assert error.value.code is Code.CONFLICT
    sink.close()
