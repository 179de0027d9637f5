"""Runs that were written before the columns of their arrangement were altered."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.algebra.spine import Spine, forget_runs, merge, open_run, run, write_parts, write_run
from headrace.algebra.spine.columns import flat
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.row_hash import hashes_of
from headrace.errors import Code, HeadraceError
from headrace.types.earlier import EARLIER, encoded

if TYPE_CHECKING:
    from pathlib import Path

SUMMED = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False)])
FORMER = Layout(
    ("k",),
    pa.schema(
        [
            ("k", pa.int64()),
            ("a", pa.int32()),
            ("b", pa.string()),
            ("d", pa.decimal128(6, 2)),
            ("f", pa.float32()),
        ]
    ),
    SUMMED,
)
PRESENT = Layout(
    ("key",),
    pa.schema(
        [
            pa.field("new", pa.string(), metadata={EARLIER: encoded(pa.array(["then"]))}),
            ("key", pa.int64()),
            ("d", pa.decimal128(12, 2)),
            ("a", pa.int64()),
            ("b", pa.int32()),
            ("f", pa.float64()),
        ]
    ),
    SUMMED,
    stored=("new", "k", "d", "a", "b_2", "f"),
)
"""After b was dropped, k renamed, a, d and f widened, and ``new``, by default 'then', and another ``b`` added."""


def rows(layout: Layout, given: list[tuple[Any, ...]]) -> ZSet:
    """Return a consolidated Z-set of rows, each with its weight at the end."""
    names = [*layout.columns.names, WEIGHT]
    types = [*layout.columns.types, pa.int64()]
    columns = [pa.array([row[i] for row in given], type_) for i, type_ in enumerate(types)]
    table = pa.table(columns, names=names)
    hashes = hashes_of([table[n].combine_chunks() for n in layout.key], len(given))
    return ZSet.of(layout, table.add_column(0, HASH, pa.array(hashes))).consolidated()


def present(row: tuple[Any, ...]) -> tuple[Any, ...]:
    k, a, _, d, f = row
    return "then", k, d, a, None, f


def bag(parts: Any) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for part in parts:
        for row in part.table.drop_columns([HASH]).to_pylist():
            *values, weight = row.values()
            found[tuple(values)] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


def expected(given: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in given:
        found[present(tuple(row))] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


VALUES = st.tuples(
    st.integers(0, 4),
    st.sampled_from([None, 1, -200, 40_000]),
    st.sampled_from(["x", "y", None]),
    st.sampled_from([None, Decimal("1.50"), Decimal("-9999.99")]),
    st.sampled_from([None, 0.5, -2.25]),
    st.sampled_from([1, -1, 2]),
)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("added_up", [True, False])
@given(before=st.lists(VALUES, max_size=12), after=st.lists(VALUES, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_is_the_projection_of_what_was_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    large: bool,  # noqa: FBT001
    added_up: bool,  # noqa: FBT001
    before: list[tuple[Any, ...]],
    after: list[tuple[Any, ...]],
) -> None:
    monkeypatch.setattr(run, "_ADDED_UP", 1 << 18 if added_up else 0)
    forget_runs()
    files = []
    whole = rows(FORMER, before)
    if whole.rows and large:  # as batches in narrower types
        half = int(whole.hashes[whole.rows // 2])
        low = whole.filter(whole.hashes < half)
        files.append(write_parts(tmp_path, FORMER, [low, whole.filter(whole.hashes >= half)]))
    elif whole.rows:
        files.append(write_run(tmp_path, whole))
    here = [(*present(tuple(row)), weight) for *row, weight in after]
    if here:
        files.append(write_run(tmp_path, rows(PRESENT, here)))
    kept = [each for each in files if each is not None]
    wanted = expected([*before, *after])

    spine = Spine.open(tmp_path, PRESENT, kept)
    assert bag(spine.scan(3)) == wanted
    assert spine.weight == sum(wanted.values())
    keys = pa.array(range(6), pa.int64())
    _, found = spine.lookup(hashes_of([keys], 6), [keys])
    assert bag([found]) == wanted
    columns = flat(spine)
    if columns is not None and all(each.distinct for each in spine.runs):
        parts = [
            ZSet(PRESENT, each.slice(0, each.rows).table).filter(mask)
            if mask is not None
            else each.slice(0, each.rows)
            for each, mask in columns.runs
        ]
        assert bag([*parts, columns.beside]) == wanted

    merged = merge(tmp_path, PRESENT, kept)
    forget_runs()
    if merged is None:
        assert not wanted
    else:
        assert bag(Spine.open(tmp_path, PRESENT, [merged]).scan(100)) == wanted
        assert {batch.schema.names[2] for batch in open_run(tmp_path, merged, PRESENT).batches} == {
            "key"
        }


def test_a_run_has_its_stored_names_in_the_file(tmp_path: Path) -> None:
    written = write_run(tmp_path, rows(PRESENT, [("n", 1, None, 2, 3, 0.5, 1)]))
    plain = Layout(
        ("k",),
        pa.schema(zip(PRESENT.stored, PRESENT.columns.types, strict=True)),
        SUMMED,
    )
    assert open_run(tmp_path, written, plain).rows == 1


def test_a_column_that_is_not_of_the_arrangement_is_damage(tmp_path: Path) -> None:
    other = Layout(("k",), pa.schema([("k", pa.int64())]), SUMMED)
    written = write_run(tmp_path, rows(other, [(1, 1)]))
    with pytest.raises(HeadraceError) as caught:
        open_run(tmp_path, written, FORMER)
    assert caught.value.code is Code.CORRUPT


def test_a_layout_survives_its_json() -> None:
    assert Layout.of_json(PRESENT.to_json()) == PRESENT
    assert Layout.of_json(FORMER.to_json()) == FORMER
    assert "stored" not in FORMER.to_json()
    assert PRESENT.shown("k") == "key"
    with pytest.raises(HeadraceError) as caught:
        PRESENT.shown("b")
    assert caught.value.code is Code.CONFLICT
