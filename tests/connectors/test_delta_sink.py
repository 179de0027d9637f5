"""Tables of Delta Lake: what they have in the end, however often the process ends."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from connectors.sink_histories import Histories, Row, begun, context, prove, table
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.execution.serving import CHANGE_COLUMNS
from headrace.io.connectors.lake.delta import DeltaSink, check, opened
from headrace.io.connectors.lake.tables import LakeTable
from headrace.io.connectors.sinks import TableContents
from headrace.types import Column, Epoch, Schema

if TYPE_CHECKING:
    from pathlib import Path

deltalake = pytest.importorskip("deltalake")

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        deltalake.DeltaTable(str(directory / "sinks/t")).to_pyarrow_table().to_pylist()
    )
    return found


def upserted(directory: Path) -> Counter[Row]:
    return Counter(tuple(each.values()) for each in rows(directory))


def summed(directory: Path) -> Counter[Row]:
    """Return the sum of the changes: what came twice would count twice."""
    total: Counter[Row] = Counter()
    for change in rows(directory):
        op, weight, _ = (change.pop(name) for name in CHANGE_COLUMNS)
        assert (op in ("+I", "+U")) == (weight > 0)
        total[tuple(change.values())] += weight
    return Counter({each: weight for each, weight in total.items() if weight})


def sink(directory: Path, mode: TableContents = TableContents.UPSERT) -> DeltaSink:
    return opened(LakeTable(path="t", mode=mode), context(directory))


@pytest.mark.parametrize(
    ("mode", "read"), [(TableContents.UPSERT, upserted), (TableContents.APPEND, summed)]
)
def test_a_table_has_the_view_however_often_the_process_ends(tmp_path, mode, read) -> None:
    settings = DeliverySettings(part_rows=6, joins=True)
    outlived = prove(
        lambda: sink(tmp_path, mode),
        lambda: read(tmp_path),
        epochs=8,
        kills=6,
        settings=settings,
    )
    assert sink(tmp_path, mode).durable() == outlived.record.delivered
    stored = sink(tmp_path, mode).stored()
    if mode is TableContents.APPEND:
        assert stored is None
    else:
        assert stored is not None
        found = Counter(tuple(each.values()) for part in stored for each in part.to_pylist())
        assert found == read(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "read"), [(TableContents.UPSERT, upserted), (TableContents.APPEND, summed)]
)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_table_has_the_view_after_long_histories(tmp_path, mode, read, seed) -> None:
    settings = DeliverySettings(part_rows=6, joins=bool(seed % 2))
    prove(lambda: sink(tmp_path, mode), lambda: read(tmp_path), seed=seed, settings=settings)


@pytest.mark.parametrize("mode", TableContents)
def test_of_two_writers_the_later_one_fails(tmp_path, mode) -> None:
    sink(tmp_path, mode).write(Epoch(1), [table([(NEW, 1)])])

    later = table([((2, *NEW[1:]), 1)])

    behind, first = sink(tmp_path, mode), sink(tmp_path, mode)
    assert behind.durable() == first.durable() == 1

    def overtaken():
        other = threading.Thread(target=first.write, args=(Epoch(2), [later]))
        other.start()
        other.join()
        yield later

    with pytest.raises(HeadraceError, match="cannot be written to") as caught:
        behind.write(Epoch(2), overtaken())
    assert caught.value.code is Code.UNAVAILABLE
    with pytest.raises(HeadraceError, match="has changed since it was last looked at"):
        behind.write(Epoch(2), [later])
    assert len(rows(tmp_path)) == 2
    assert behind.durable() == 2


def test_a_null_in_the_key_is_a_key(tmp_path) -> None:
    keyed = dataclasses.replace(context(tmp_path), key=("name",))
    writer = opened(LakeTable(path="t"), keyed)
    old, new = (1, None, *NEW[2:]), (2, None, *NEW[2:])
    writer.write(Epoch(1), [table([(old, 1), (NEW, 1)])])
    writer.write(Epoch(2), [table([(old, -1), (new, 1), (NEW, -1)])])
    assert upserted(tmp_path) == Counter([new])


def test_every_type_is_kept(tmp_path) -> None:
    kinds = {
        "i": (t.ByteType(), 1),
        'Odd "name"': (t.ShortType(), 2),
        "k": (t.StringType(), "k"),
        "x": (t.BinaryType(), b"\0"),
        "d": (t.DateType(), datetime(2026, 1, 1, tzinfo=UTC).date()),
        "n": (t.TimestampNTZType(), datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone
        "f": (t.FloatType(), 1.5),
        "g": (t.DoubleType(), float("inf")),
        "l": (t.ArrayType(t.StructType().add("a", "integer")), [{"a": 1}, None]),
        "m": (t.MapType(t.StringType(), t.LongType()), [("a", None)]),
    }
    schema = Schema(tuple(Column(name, kind) for name, (kind, _) in kinds.items()))
    given = dataclasses.replace(context(tmp_path), schema=schema, key=("k", 'Odd "name"'))
    check(LakeTable(path="t"), given)
    part = pa.table(
        {name: pa.array([v], schema.arrow.field(name).type) for name, (_, v) in kinds.items()}
    ).append_column(WEIGHT, pa.array([1]))
    writer = opened(LakeTable(path="t"), given)
    for epoch in (1, 2):
        writer.write(Epoch(epoch), [part])
    (found,) = rows(tmp_path)
    assert found == {name: value for name, (_, value) in kinds.items()}
    check(LakeTable(path="t"), given)
    with pytest.raises(HeadraceError, match="does not have column"):
        check(LakeTable(path="t"), context(tmp_path))
    interval = Schema((Column("k", t.StringType()), Column("i", t.DayTimeIntervalType())))
    with pytest.raises(HeadraceError, match="cannot be written to Delta"):
        check(LakeTable(path="u"), dataclasses.replace(given, schema=interval, key=("k",)))


def test_a_table_that_is_reset_is_empty(tmp_path) -> None:
    writer = sink(tmp_path)
    writer.clear()
    assert writer.durable() is None
    writer.write(Epoch(7), [table([(NEW, 1)])])
    writer.clear()
    assert writer.durable() is None
    assert rows(tmp_path) == []
    writer.write(Epoch(9), [table([(NEW, 1)])])
    assert (writer.durable(), len(rows(tmp_path))) == (9, 1)
    writer.write(Epoch(10), [table([(NEW, -1)])])
    assert (writer.durable(), len(rows(tmp_path))) == (10, 0)
    writer.clear()
    assert writer.durable() is None


def test_a_table_that_is_gone_is_said_to_have_lost_changes(tmp_path) -> None:
    histories = Histories()
    histories.change({1: NEW})
    delivery = begun(histories).delivery(sink(tmp_path), DeliverySettings())
    delivery.advance()
    shutil.rmtree(tmp_path / "sinks/t")
    histories.change({3: (3, *NEW[1:])})
    for _ in range(2):  # in the process that wrote it, and after the next attempt
        with pytest.raises(HeadraceError, match='the Delta table at "t" has lost changes'):
            delivery.advance()
    again = delivery.loop.delivery(sink(tmp_path), DeliverySettings())
    histories.change({2: (2, *NEW[1:])})
    with pytest.raises(HeadraceError, match='the Delta table at "t" has lost changes'):
        again.advance()


def test_a_failure_names_no_place_of_the_machine(tmp_path) -> None:
    sink(tmp_path).write(Epoch(1), [table([(NEW, 1)])])
    for log in (tmp_path / "sinks/t/_delta_log").iterdir():
        log.write_text("{")
    with pytest.raises(
        HeadraceError, match='the Delta table at "t" cannot be written to'
    ) as caught:
        sink(tmp_path).durable()
    assert caught.value.code is Code.UNAVAILABLE
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("mode", TableContents)
def test_an_epoch_without_changes_is_recorded(tmp_path, mode) -> None:
    writer = sink(tmp_path, mode)
    gone = table([((9, *NEW[1:]), -1)])
    for epoch, parts in (
        (1, []),
        (2, [table([(NEW, 1)])]),
        (3, []),
        (4, [gone][: mode is TableContents.UPSERT]),
    ):
        assert list(writer.write(Epoch(epoch), parts)) == []
        assert writer.durable() == epoch
    assert len(rows(tmp_path)) == 1


def test_upserts_need_a_key(tmp_path) -> None:
    without = dataclasses.replace(context(tmp_path), key=())
    with pytest.raises(HeadraceError, match="no unique key of the rows is known"):
        check(LakeTable(path="t"), without)
    check(LakeTable(path="t", mode=TableContents.APPEND), without)
