"""Segments that were written before columns were renamed, dropped or widened."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType

from headrace.algebra.zset import Restriction
from headrace.algebra.zset.restriction import Test
from headrace.storage.ledger import OffsetRange, Segment
from headrace.storage.log import EmbeddedLog, LogShare, bounds_of, read_bounds, write_segment
from headrace.types import Column, Offset, RelationId, Schema
from headrace.types.earlier import encoded

FORMER = Schema((Column("a", IntegerType()), Column("k", StringType())))
PRESENT = Schema(
    (Column("b", LongType(), stored="a"), Column("a", StringType(), stored="a_2"))
)  # k was dropped, a renamed and widened, and another a added


def share(directory, *tables):
    segments, first = [], 0
    for table in tables:
        end = first + table.num_rows
        file = write_segment(directory, table)
        segments.append(Segment(RelationId(1), OffsetRange(Offset(first), Offset(end)), file, 0.0))
        first = end
    return LogShare(tuple(segments), Offset(0), Offset(first))


def read(directory, share, restriction):
    batches = EmbeddedLog().read(
        directory, share, PRESENT.stored, offsets=False, restriction=restriction
    )
    return [tuple(row.values())[:2] for batch in batches for row in batch.to_pylist()]


def test_earlier_segments_are_read_under_stored_names_and_as_present_types(tmp_path):
    old = pa.table({"a": pa.array([1, None], pa.int32()), "k": ["x", "y"]})
    new = pa.table({"b": pa.array([2**40], pa.int64()), "a": ["z"]})
    assert PRESENT.of_log(PRESENT.in_log(new)) == new
    written = share(tmp_path, FORMER.in_log(old), PRESENT.in_log(new))
    assert read(tmp_path, written, Restriction()) == [(1, None), (None, None), (2**40, "z")]
    wanted = Restriction((Test("a", pa.array([1, 2**40], pa.int64())),))
    assert read(tmp_path, written, wanted) == [(1, None), (2**40, "z")]
    from_two = Restriction((Test("a", low=pa.scalar(2, pa.int64())),))
    assert read(tmp_path, written, from_two) == [(2**40, "z")]
    bounds = read_bounds(bounds_of(FORMER.in_log(old)), PRESENT.stored)
    assert bounds.keys() == {"a"}
    assert not from_two.may_hold(bounds)
    assert wanted.may_hold(bounds)


def test_earlier_segments_have_the_default_of_a_column_that_was_added(tmp_path):
    then = encoded(pa.array([11], pa.int32()))
    added = Schema((*FORMER.columns, Column("x", LongType(), stored="y", earlier=then)))
    assert Schema.of_json(added.to_json()) == added
    old = pa.table({"a": pa.array([1, 2], pa.int32()), "k": ["x", "y"]})
    new = pa.table({**dict(zip("ak", old.columns, strict=True)), "x": pa.array([None, 12])})
    written = share(tmp_path, FORMER.in_log(old), added.in_log(new))

    def values(restriction):
        read = EmbeddedLog().read(
            tmp_path, written, added.stored, offsets=False, restriction=restriction
        )
        return [value for batch in read for value in batch["y"].to_pylist()]

    assert values(Restriction()) == [11, 11, None, 12]
    assert values(Restriction((Test("y", pa.array([11], pa.int64())),))) == [11, 11]
    assert values(Restriction((Test("y", above=pa.scalar(11, pa.int64())),))) == [12]
    assert encoded(pa.array([None], pa.int32())) is None


def test_a_schema_and_its_stored_names_are_stored():
    found = Schema.of_json(PRESENT.to_json())
    assert found == PRESENT
    assert found.stored_names == ("a", "a_2")
    assert found.arrow.names == ["b", "a"]
    assert "metadata" not in str(FORMER.to_json()["fields"][0].get("metadata") or "")
