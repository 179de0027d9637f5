"""Excerpts of spines: some columns under other names, as if only these had ever been kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import HIGHEST, LOWEST, Spine, write_run
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.errors import HeadraceError
from reference import hash_of, is_consolidated, numbers, table_of

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = pa.schema([(WEIGHT, pa.int64())])
COLUMNS = pa.schema([("v", pa.string()), ("k", pa.int64()), ("j", pa.string())])
LAYOUT = Layout(("k",), COLUMNS, WEIGHTS)
SEEN = Layout(("r1",), pa.schema([("r0", pa.string()), ("r1", pa.int64())]), WEIGHTS)

row = st.fixed_dictionaries(
    {
        "v": st.sampled_from([None, "x", "y"]),
        "k": st.sampled_from([None, 1, 2, 3]),
        "j": st.sampled_from(["", "a"]),
        WEIGHT: st.integers(-1, 1),
    }
)
history = st.lists(st.lists(row, max_size=10), max_size=4)
some_bits = st.sampled_from([1, 2, 64])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def rows_of(spine: Spine, kept: int) -> list[dict[str, object]]:
    asked = [1, 2, 3, 4]
    hashes = numbers(*(hash_of((key,), kept) for key in asked))
    probes, found = spine.lookup(hashes, [pa.array(asked, pa.int64())])
    entries = [
        {**entry, "asked": asked[probe]}
        for probe, entry in zip(probes.tolist(), found.table.to_pylist(), strict=True)
    ]
    return sorted(entries, key=repr)


def scanned(spine: Spine) -> list[dict[str, object]]:
    parts = list(spine.scan(3))
    assert all(is_consolidated(part) for part in parts)
    return sorted((entry for part in parts for entry in part.table.to_pylist()), key=repr)


@given(
    epochs=history,
    change=st.lists(row, max_size=6),
    kept=some_bits,
    present=st.sampled_from([(), ("r0",)]),
    below=st.sampled_from([LOWEST, -(2**62), 0, 2**61, HIGHEST, None]),
)
def test_an_excerpt_finds_what_a_copy_of_these_columns_would(
    directory: Path, epochs: list, change: list, kept: int, present: tuple, below: int | None
) -> None:
    def copied(rows: list, *, upto: int | None) -> ZSet:
        given = [{"r0": r["v"], "r1": r["k"], WEIGHT: r[WEIGHT]} for r in rows]
        given = [g for g in given if not present or g["r0"] is not None]
        table = table_of(
            SEEN, [g for g in given if upto is None or hash_of((g["r1"],), kept) < upto], bits=kept
        )
        return ZSet.of(SEEN, table).consolidated()

    parts = [ZSet.of(LAYOUT, table_of(LAYOUT, rows, bits=kept)).consolidated() for rows in epochs]
    spine = Spine.open(directory, LAYOUT, [write_run(directory, part) for part in parts])
    if below is not None:
        spine = spine.below(below)
    seen = spine.excerpt(SEEN, ("v", "k"), present)
    copy = Spine(SEEN)
    for rows in epochs:
        copy = copy.plus(copied(rows, upto=below))
    later = copied(change, upto=None)
    for one, other in ((seen, copy), (seen.plus(later), copy.plus(later))):
        assert rows_of(one, kept) == rows_of(other, kept)
        assert scanned(one) == scanned(other)


def test_an_excerpt_by_another_key_is_refused() -> None:
    with pytest.raises(HeadraceError, match="has another key than its arrangement"):
        Spine(LAYOUT).excerpt(SEEN, ("k", "v"))


def test_an_excerpt_copies_no_column() -> None:
    table = table_of(LAYOUT, [{"v": "x", "k": 1, "j": "", WEIGHT: 1}])
    spine = Spine(LAYOUT).plus(ZSet.of(LAYOUT, table).consolidated())
    (run,) = spine.excerpt(SEEN, ("v", "k")).runs
    for mine, theirs in ((HASH, HASH), ("r0", "v"), ("r1", "k")):
        (one,) = {b.column(mine).buffers()[-1].address for b in run.batches}
        (other,) = {b.column(theirs).buffers()[-1].address for b in spine.runs[0].batches}
        assert one == other
