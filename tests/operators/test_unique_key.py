"""The check of a declared key: against counting the rows of each key."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import Violation, violation
from headrace.algebra.spine import Spine
from headrace.algebra.zset import WEIGHT, Layout, ZSet
from reference import table_of

COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("x", pa.int64())])
LAYOUT = Layout(("id", "part"), COLUMNS, pa.schema([(WEIGHT, pa.int64())]))

row = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["a", "b"]), st.sampled_from([7, 8]))
epoch = st.lists(st.tuples(row, st.booleans()), max_size=6)


def zset(rows: Counter[tuple], bits: int = 64) -> ZSet:
    listed = [dict(zip(COLUMNS.names, r, strict=True)) | {WEIGHT: n} for r, n in rows.items()]
    made = ZSet.of(LAYOUT, table_of(LAYOUT, listed, bits=bits))
    return made.consolidated()


def broken(rows: Counter[tuple]) -> set[tuple]:
    keys: Counter[tuple] = Counter()
    for (id_, part, _), count in rows.items():
        keys[id_, part] += max(count, 0)
    return {key for key, count in keys.items() if count > 1 or (count and key[0] is None)}


@given(epochs=st.lists(epoch, max_size=5), bits=st.sampled_from([1, 64]))
def test_an_epoch_breaks_the_key_if_and_only_if_a_key_has_two_rows_or_a_null(
    epochs: list, bits: int
) -> None:
    before: Counter[tuple] = Counter()
    for changes in epochs:
        delta: Counter[tuple] = Counter()
        for each, inserted in changes:
            if inserted:
                delta[each] += 1
            elif before[each] + delta[each] > 0:
                delta[each] -= 1
        delta = Counter({r: n for r, n in delta.items() if n})
        after = Counter(before)
        for each, count in delta.items():
            after[each] += count
        found = violation(Spine(LAYOUT, ()).plus(zset(before, bits)), zset(delta, bits))
        wrong = broken(after)
        assert (found is not None) == bool(wrong)
        if found is not None:
            assert found.key in wrong
            assert all((r["id"], r["part"]) == found.key for r in found.rows)
            assert len(found.rows) == (1 if found.key[0] is None else 2)
            return
        before = Counter({r: n for r, n in after.items() if n})


def test_a_row_that_occurs_twice_is_both_rows():
    one = {"id": 1, "part": "a", "x": 7}
    found = violation(Spine(LAYOUT, ()), zset(Counter({(1, "a", 7): 2})))
    assert found == Violation((1, "a"), (one, one))
