"""Appending changes to the log of a stream or table."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.log import Append
from headrace.parts.generated_columns import (
    has_offsets,
    with_generated_columns,
    with_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from headrace.catalog import Stream, Table
    from headrace.ledger import LoadProgress, ProducerPosition, Reject
    from headrace.parts.instance import Instance
    from headrace.types import Offset


def append(
    instance: Instance,
    relation: Stream | Table,
    rows: pa.Table,
    *,
    load: LoadProgress | None = None,
    producer: ProducerPosition | None = None,
    rejects: Sequence[Reject] = (),
    guard: Callable[[Offset], None] | None = None,
) -> Offset:
    """Append changes durably and wake the pump; return the log's end after them.

    For ``guard`` see :class:`Append`.
    """
    placed = None
    if relation.declaration.generated and rows.num_rows:
        rows = with_generated_columns(instance.queries, relation, rows)
        if has_offsets(relation):
            without, placed = rows, lambda first: with_offsets(relation, without, first)
    asked = Append(relation.id, rows, load, producer, rejects, placed, guard)
    end = instance.appender.append(asked).end
    instance.pump.wake()
    return end


def changing(instance: Instance, table: Table) -> threading.RLock:
    """Return the lock of the statements that read a table and change the rows they read."""
    return instance.changing.setdefault(table.id, threading.RLock())


@contextmanager
def alone(instance: Instance, table: Table) -> Iterator[None]:
    """Have all other writers of a table wait while the block runs."""
    with changing(instance, table), instance.appender.closed(table.id):
        yield
