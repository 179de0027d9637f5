"""Layout: what it refuses, and its round trip through JSON."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy
from headrace.errors import Code, HeadraceError

COUNT = pa.field(WEIGHT, pa.int64())
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.map_(pa.string(), pa.list_(pa.decimal128(38, 18)))),
    ]
)
LAYOUT = Layout(("id",), COLUMNS, pa.schema([COUNT, ("total", pa.decimal128(20, 2))]))


def test_a_layout_survives_json() -> None:
    assert Layout.of_json(json.loads(json.dumps(LAYOUT.to_json()))) == LAYOUT


def test_a_layout_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(LAYOUT))  # noqa: S301  (our own bytes)
    assert copy == LAYOUT
    assert copy.schema.equals(LAYOUT.schema)


def test_the_physical_order_is_hash_identity_sums() -> None:
    assert LAYOUT.schema.names == [HASH, "id", "at", "tags", WEIGHT, "total"]


def test_a_layout_may_have_no_columns() -> None:
    assert Layout((), pa.schema([]), pa.schema([COUNT])).schema.names == [HASH, WEIGHT]


@pytest.mark.parametrize(
    ("key", "columns", "summed", "message"),
    [
        (("id",), [("x", pa.int64())], [COUNT], "not an identity column"),
        ((), [("x", pa.int64())], [], "no int64 weight"),
        ((), [(WEIGHT, pa.int64())], [COUNT], "have the same name"),
        ((), [], [COUNT, ("mean", pa.float64())], "neither int64 nor decimal128"),
    ],
)
def test_a_malformed_layout_is_refused(
    key: tuple, columns: list, summed: list, message: str
) -> None:
    with pytest.raises(HeadraceError, match=message) as caught:
        Layout(key, pa.schema(columns), pa.schema(summed))
    assert caught.value.code == Code.INTERNAL


def test_an_order_survives_json_and_a_layout_written_without_one_still_reads() -> None:
    order = (OrderBy("at", descending=True, nulls_first=False), OrderBy("id"))
    ordered = Layout(LAYOUT.key, LAYOUT.columns, LAYOUT.summed, order)
    assert Layout.of_json(json.loads(json.dumps(ordered.to_json()))) == ordered
    assert "order" not in LAYOUT.to_json()
    assert ordered != LAYOUT
    assert ordered.with_summed(pa.field("more", pa.int64())).order == order


@pytest.mark.parametrize(
    ("name", "message"), [("tags", "is not orderable"), ("total", "is not an identity column")]
)
def test_an_order_that_columns_do_not_have_is_refused(name: str, message: str) -> None:
    with pytest.raises(HeadraceError, match=message):
        Layout(LAYOUT.key, LAYOUT.columns, LAYOUT.summed, (OrderBy(name),))
