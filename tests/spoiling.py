"""Wrong rows in a view: files that the ledger names, whole and sound, and not what they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from headrace.algebra.spine import write_run
from headrace.algebra.zset import WEIGHT, ZSet
from headrace.storage.ledger import EpochCommit, NewRun, RunKind
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import headrace

Row = dict[str, object]


def spoil(db: headrace.Database, view: str, changed: Callable[[Row], Row | None]) -> int:
    """Have stored rows of a view replaced by others of the same key, or None; return their number.

    A row for which ``changed`` returns the same row stays.
    """
    reader, loop = db.parts.reader, db.parts.loop
    relation = reader.catalog.resolve(view)
    layout = reader.published.layout(relation)
    delta: list[Row] = []
    spoiled = 0
    for part in reader.published.spine(relation, loop.directory).scan(1 << 16):
        for row in part.table.to_pylist():
            new = changed(dict(row))
            if new != row:
                delta += [{**row, WEIGHT: -row[WEIGHT]}, *([] if new is None else [new])]
                spoiled += 1
    if delta:
        with loop.exclusive():
            rows = ZSet(layout, pa.Table.from_pylist(delta, schema=layout.schema)).consolidated()
            file = write_run(loop.runs, rows)
            run = NewRun(file, rows_of(relation.id), RunKind.DELTA)
            ledger = db.parts.ledger
            ledger.commit(EpochCommit(ledger.head.epoch, uuid4().hex, runs=(run,)))
    return spoiled
