"""Elements of arrays as rows, compared with loops in plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.execution.engine.narrow.nodes import Exploding

ARRAYS = st.lists(st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=4), max_size=8)
SLICED = st.integers(0, 2)


class Column:
    """Stands for the expression of the array: a column of the rows."""

    def over(self, rows: pa.Table) -> pa.Table:
        return rows.select(["a"])


def exploded(arrays: Any, *, outer: bool) -> list[tuple[int, int | None, int | None]]:
    found: list[tuple[int, int | None, int | None]] = []
    for row, array in enumerate(arrays):
        found += [(row, i, value) for i, value in enumerate(array or ())]
        if outer and not array:
            found.append((row, None, None))
    return found


@pytest.mark.parametrize("outer", [False, True])
@given(arrays=ARRAYS, skipped=SLICED)
def test_each_element_is_a_row(outer: bool, arrays: Any, skipped: int) -> None:  # noqa: FBT001
    rows = pa.table(
        {
            "k": pa.array(range(-skipped, len(arrays)), pa.int64()),
            "a": pa.array([[9, 9]] * skipped + arrays, pa.list_(pa.int32())),
        }
    ).slice(skipped)
    fields = [("k", pa.int64()), ("i", pa.int32()), ("v", pa.int32())]
    column: Any = Column()
    rest = (0,), outer
    with_places = Exploding(column, *rest, True, pa.schema(fields)).over(rows)  # noqa: FBT003
    expected = exploded(arrays, outer=outer)
    assert list(zip(*(c.to_pylist() for c in with_places.columns), strict=True)) == expected
    plain = Exploding(column, *rest, False, pa.schema([fields[0], fields[2]])).over(rows)  # noqa: FBT003
    bare = [(k, v) for k, _, v in expected]
    assert list(zip(*(c.to_pylist() for c in plain.columns), strict=True)) == bare
