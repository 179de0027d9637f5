"""Made-up rows: the same for the same seed, in the shares and ranges that were asked for."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.io.connectors import Given
from headrace.io.connectors.datagen.source import DatagenSource, Options
from headrace.io.connectors.options import read_options, restored_options, stored_options
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.execution.runtime.ports import Part

FAST = {"rows-per-second": "50000000", "start-time": "2026-01-01 00:00:00"}
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KINDS: dict[str, t.DataType] = {
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "tinyint": t.ByteType(),
    "double": t.DoubleType(),
    "dec": t.DecimalType(10, 2),
    "bool": t.BooleanType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "ts": t.TimestampType(),
    "array": t.ArrayType(t.LongType()),
}


def source(columns: Mapping[str, str], options: Mapping[str, str]) -> DatagenSource:
    schema = Schema(
        tuple(Column(n, KINDS[k.rstrip("!")], not k.endswith("!")) for n, k in columns.items())
    )
    given = [Given(key, value) for key, value in options.items()]
    read = read_options(Options, given, "a datagen source")
    assert restored_options(Options, stored_options(read), "a datagen source") == read
    return DatagenSource(read, schema)


def made(columns: Mapping[str, str], count: int, **fields: str) -> pa.Table:
    """Rows of columns with options, in which ``__`` is a dot and ``_`` a hyphen."""
    options = {k.replace("__", ".").replace("_", "-"): v for k, v in fields.items()}
    options |= {**FAST, "number-of-rows": str(count)}
    return pa.concat_tables([part.rows for part in source(columns, options).parts(None)])


def refused(columns: Mapping[str, str], **fields: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        made(columns, 1, **fields)
    return caught.value


def test_rows_are_the_same_wherever_the_reading_was_interrupted() -> None:
    columns = {"id": "bigint", "user": "string", "price": "dec", "at": "ts", "f": "double"}
    options = {
        **FAST,
        "number-of-rows": "150000",
        "fields.id.kind": "sequence",
        "fields.user.values": "ann,bob,cy",
        "fields.price.min": "0.50",
        "fields.price.max": "9.99",
        "lateness.share": "0.1",
        "lateness.max": "30 s",
        "duplicates.share": "0.2",
        "seed": "7",
    }
    whole = pa.concat_tables([p.rows for p in source(columns, options).parts(None)])
    assert whole.num_rows == 150_000
    pieces: list[pa.Table] = []
    at: Any = None
    while sum(piece.num_rows for piece in pieces) < 150_000:
        part = next(iter(source(columns, options).parts(at)))  # each time by a new reader
        pieces.append(part.rows)
        at = part.position
        if len(pieces) % 2:
            pieces.append((part := next(iter(source(columns, options).parts(at)))).rows)
            at = part.position
        if len(pieces) > 40:  # a reader's first part is one row: the rest at once
            rest = list(source(columns, options).parts(at))
            pieces += [each.rows for each in rest]
            at = rest[-1].position
    assert pa.concat_tables(pieces).equals(whole)
    other = pa.concat_tables([p.rows for p in source(columns, options | {"seed": "8"}).parts(None)])
    assert not other["user"].equals(whole["user"])


def test_values_keep_to_their_ranges_and_reach_all_of_them() -> None:
    columns = {"i": "int", "d": "dec", "f": "double", "s": "string", "b": "binary", "t": "bool"}
    found = made(
        columns,
        20_000,
        fields__i__min="-3",
        fields__i__max="3",
        fields__d__min="-0.05",
        fields__d__max="0.05",
        fields__f__min="-2",
        fields__f__max="5",
        fields__s__length="7",
        fields__b__length="3",
    )
    assert set(found["i"].to_pylist()) == set(range(-3, 4))
    assert set(found["d"].to_pylist()) == {Decimal(n).scaleb(-2) for n in range(-5, 6)}
    assert -2 <= min(found["f"].to_pylist()) < -1.9 < 4.9 < max(found["f"].to_pylist()) < 5
    texts = found["s"].to_pylist()
    assert {len(text) for text in texts} == {7}
    assert set("".join(texts)) == set("0123456789abcdef")
    assert len(set(texts)) > 19_900
    assert {len(value) for value in found["b"].to_pylist()} == {3}
    assert 9_500 < sum(found["t"].to_pylist()) < 10_500
    assert found[WEIGHT].to_pylist() == [1] * 20_000


def test_whole_ranges_of_types_are_used() -> None:
    found = made({"a": "bigint", "b": "tinyint"}, 50_000)
    assert min(found["a"].to_pylist()) < -(1 << 62)
    assert max(found["a"].to_pylist()) > 1 << 62
    assert set(found["b"].to_pylist()) == set(range(-128, 128))


def test_weights_and_zipf_give_the_shares_that_they_name() -> None:
    found = made(
        {"page": "string", "user": "int"},
        100_000,
        fields__page__values="home,cart,pay",
        fields__page__weights="70,20,10",
        fields__user__min="1",
        fields__user__max="100",
        fields__user__distribution="zipf",
        fields__user__exponent="1.0",
    )
    counts = {row["values"]: row["counts"] for row in found["page"].value_counts().to_pylist()}
    assert {name: round(n / 1000) for name, n in counts.items()} == {
        "home": pytest.approx(70, abs=1),
        "cart": pytest.approx(20, abs=1),
        "pay": pytest.approx(10, abs=1),
    }
    users = np.bincount(found["user"].to_numpy(), minlength=101)
    harmonic = sum(1 / k for k in range(1, 101))
    for rank in (1, 2, 10, 50):
        assert users[rank] == pytest.approx(100_000 / harmonic / rank, rel=0.15)


def test_event_times_follow_the_pace_and_some_are_late_within_the_bound() -> None:
    options = {
        "rows-per-second": "1000000",
        "number-of-rows": "100000",
        "start-time": "2026-01-01 00:00:00",
        "lateness.share": "0.05",
        "lateness.max": "10 s",
    }
    parts = list(source({"at": "ts", "day": "date"}, options).parts(None))
    found = pa.concat_tables([part.rows for part in parts])
    due = [EPOCH + dt.timedelta(microseconds=n) for n in range(100_000)]
    late = [(d - at).total_seconds() for d, at in zip(due, found["at"].to_pylist(), strict=True)]
    assert 4_700 < sum(each > 0 for each in late) < 5_300
    assert min(late) == 0
    assert 9.9 < max(late) <= 10
    assert {str(day) for day in found["day"].to_pylist()} == {"2026-01-01", "2025-12-31"}


def test_duplicates_equal_a_row_shortly_before_them() -> None:
    found = made({"id": "bigint", "at": "ts"}, 50_000, duplicates__share="0.1", fields__id__kind="sequence")  # fmt: skip
    ids = found["id"].to_pylist()
    repeated = [(n, each) for n, each in enumerate(ids) if each != n]
    assert 4_000 < len(repeated) < 5_000  # a row whose turn is to repeat a repeated one does not
    times = found["at"].to_pylist()
    assert all(1 <= n - each <= 100 and times[n] == times[each] for n, each in repeated)


def test_a_sequence_ends_the_rows() -> None:
    found = made({"n": "int", "s": "string", "d": "dec"}, 9, fields__n__kind="sequence", fields__n__start="3", fields__n__end="7", fields__s__kind="sequence", fields__d__kind="sequence")  # fmt: skip
    assert found["n"].to_pylist() == [3, 4, 5, 6, 7]
    assert found["s"].to_pylist() == ["0", "1", "2", "3", "4"]
    assert found["d"].to_pylist() == [Decimal(n) for n in range(5)]


def test_rows_come_at_their_pace_and_continue_in_the_present() -> None:
    paced = source({"n": "bigint", "at": "ts"}, {"rows-per-second": "2000", "fields.n.kind": "sequence"})  # fmt: skip
    begun, parts = time.monotonic(), []
    for part in paced.parts(None):
        parts.append(part)
        if time.monotonic() - begun > 0.5:
            paced.close()
    assert 0.5 * 2000 <= parts[-1].done <= 2000 * (time.monotonic() - begun) + 1
    at: Part = parts[-1]
    time.sleep(0.2)
    again = source({"n": "bigint", "at": "ts"}, {"rows-per-second": "2000", "fields.n.kind": "sequence"})  # fmt: skip
    first = next(iter(again.parts(at.position)))
    assert first.rows["n"].to_pylist() == [at.done]
    gap = first.rows["at"][0].as_py() - at.rows["at"][-1].as_py()
    assert gap >= dt.timedelta(seconds=0.2)


def test_a_duplicate_of_a_row_before_a_restart_has_its_time() -> None:
    options = {"rows-per-second": "1000", "duplicates.share": "0.3", "fields.n.kind": "sequence"}
    rows: list[dict[str, Any]] = []
    at: Any = None
    for _ in range(6):
        paced = source({"n": "bigint", "at": "ts"}, options)
        for part in paced.parts(at):
            rows += part.rows.to_pylist()
            at = part.position
            if len(rows) % 7 == 0 or part.rows.num_rows > 20:
                paced.close()
    first = {row["n"]: row["at"] for row in rows if rows[row["n"]]["n"] == row["n"]}
    assert any(row["n"] != place for place, row in enumerate(rows))
    assert all(row["at"] == first[row["n"]] for row in rows)
    assert all(a <= b for a, b in pairwise(first[n] for n in sorted(first)))


@pytest.mark.parametrize(
    ("column", "fields", "words"),
    [
        ("int", {"fields__a__min": "5", "fields__a__max": "1"}, "above the maximum"),
        ("int", {"fields__a__max": "3000000000"}, "not a value of type int"),
        ("int", {"fields__a__length": "5"}, "do not have it"),
        ("int", {"fields__b__min": "5"}, "does not name a generated column"),
        ("int", {"fields__a__least": "5"}, "does not exist"),
        ("dec", {"fields__a__min": "0.001"}, "not a value of type decimal"),
        ("string", {"fields__a__values": "a,b", "fields__a__weights": "1"}, "one number for each"),
        ("bigint", {"fields__a__distribution": "zipf"}, "zipf has at most"),
        ("bool", {"fields__a__kind": "sequence"}, "has no sequence"),
        ("tinyint", {"fields__a__kind": "sequence", "fields__a__end": "300"}, "does not hold"),
        ("int!", {"fields__a__null_rate": "0.5"}, "NOT NULL"),
        ("int", {"duplicates__share": "1.5"}, "not a share"),
        ("int", {"lateness__share": "0.5"}, "need each other"),
        ("array", {}, "cannot be generated"),
    ],
)
def test_options_that_mean_nothing_are_refused(column: str, fields: dict[str, str], words: str) -> None:  # fmt: skip
    error = refused({"a": column}, **fields)
    assert words in error.primary
    assert error.code is (Code.UNSUPPORTED if column == "array" else Code.INVALID)
    assert error.hint


def test_nulls_come_in_their_share() -> None:
    found = made({"a": "int"}, 20_000, fields__a__null_rate="0.25")
    assert 4_800 < found["a"].null_count < 5_200
