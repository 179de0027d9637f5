"""The changes between two epochs turn the contents at one into the contents at the other."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algebra.spine import PackWriter, Spine, partition_of
from headrace.errors import HeadraceError
from headrace.execution.runtime import compaction
from headrace.execution.serving import CHANGE_COLUMNS, ChangedRows
from headrace.planning.catalog import key_of
from headrace.storage.ledger import RunKind
from headrace.types import Epoch, rows_of
from length import choose
from runtime.pure import PureDatabase
from serving.played import STEP, played

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.algebra.spine import RunFile
    from headrace.types import RelationId

OPERATION, WEIGHT, EPOCH = CHANGE_COLUMNS


@pytest.fixture(autouse=True, scope="module")
def _merges_at_once() -> Iterator[None]:
    """Have every pass merge all runs of a partition, not only many of them."""

    def due(runs: Sequence[RunFile], partitions: int, _leaving: object) -> list[list[RunFile]]:
        owners = partition_of(np.array([run.low for run in runs], np.int64), partitions)
        groups = [[r for r, o in zip(runs, owners, strict=True) if o == p] for p in {*owners}]
        return [group for group in groups if len(group) > 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "due_by_partition", due)
        yield


def read(db: PureDatabase, id_: RelationId, after: int, upto: int, part_rows: int = 1 << 18):
    """Return the changes, and the number of runs that they were written in."""
    rows = ChangedRows(db.history(id_), key_of(db.loop.catalog.by_id[id_]), part_rows)
    with PackWriter(db.directory / "runs") as pack:
        files = rows.write(Epoch(after), Epoch(upto), pack)
        pack.finish()
        spine = Spine.open(db.directory / "runs", rows.layout, files)
        found = [row for part in spine.scan(2) for row in part.table.to_pylist()]
        pack.abandon()
    assert all(row.pop("__weight") == 1 and isinstance(row.pop("__hash"), int) for row in found)
    return found, len(files)


def apply(contents: Counter[tuple[int, ...]], changes: list[dict[str, int]]):
    """Return the contents after changes."""
    total = Counter(contents)
    for row in changes:
        values = tuple(value for name, value in row.items() if name not in CHANGE_COLUMNS)
        total[values] += row[WEIGHT]
    return Counter({values: n for values, n in total.items() if n})


def check(db: PureDatabase, id_: RelationId, part_rows: int) -> None:
    """Compare the changes of every range of epochs with the contents at its ends."""
    since, last = db.ledger.spines.since(rows_of(id_)), db.ledger.head.epoch
    epochs = range(since, last + 1)
    contents = {epoch: db.rows(id_, Epoch(epoch)) for epoch in epochs}
    for after, upto in combinations_with_replacement(epochs, 2):
        changes, _ = read(db, id_, after, upto, part_rows)
        assert apply(contents[after], changes) == contents[upto], (after, upto)
        assert all(after < row[EPOCH] <= upto for row in changes)
    for epoch in epochs[1:]:
        key = db.history(id_).layout.key
        signs: dict[tuple[int, ...], list[str]] = {}
        for row in read(db, id_, epoch - 1, epoch, part_rows)[0]:
            assert (row[WEIGHT] > 0) == row[OPERATION].startswith("+")
            signs.setdefault(tuple(row[name] for name in key), []).append(row[OPERATION])
        assert {tuple(sorted(each)) for each in signs.values()} <= {("+I",), ("-D",), ("+U", "-U")}
    if since:
        with pytest.raises(HeadraceError, match="can no longer be read"):
            read(db, id_, since - 1, last, part_rows)


@settings(max_examples=choose(4, 200))
@given(steps=st.lists(STEP, min_size=2, max_size=8), part_rows=st.sampled_from([1, 3, 1 << 18]))
def test_contents_and_changes_make_later_contents(steps, part_rows) -> None:
    with TemporaryDirectory() as folder:
        db = PureDatabase(Path(folder))
        for relation in played(db, steps):
            check(db, relation.id, part_rows)
        db.close()


def test_changes_inside_a_merged_run_are_exact_while_they_are_kept(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    held = db.loop.published.current  # nothing after this epoch is given up
    for n in range(6):
        db.append(table, [(1, n % 3, 1), (n, 0, 1)])
        db.loop.advance()
    assert db.compaction.run() > 0
    live = db.ledger.spines.runs(rows_of(table.id))
    assert any(run.kind is RunKind.MERGED and run.added > held.epoch for run in live)
    db.append(table, [(9, 9, 1)])
    db.loop.advance()
    check(db, table.id, 1 << 18)
    files = {path.name for path in (tmp_path / "runs").iterdir()}
    assert files == db.ledger.files.known().packs  # those of the changes are gone
    assert read(db, table.id, held.epoch, db.ledger.head.epoch)[1] == 1
    assert read(db, table.id, held.epoch, db.ledger.head.epoch, 2)[1] > 3
    del held
    db.compaction.run()
    since = db.ledger.spines.since(rows_of(table.id))
    assert since == db.ledger.head.epoch - 4
    check(db, table.id, 1 << 18)
    db.close()
