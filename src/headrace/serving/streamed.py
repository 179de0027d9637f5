"""Streams all rows of a relation in batches, mostly views of memory-mapped files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.serving.contents import repeated
from headrace.spine import flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.serving.contents import Contents


def row_batches(contents: Contents, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows, each as often as its weight, in no defined order."""
    found = flat(contents.spine)
    if found is None:
        for part in contents.parts(columns):
            yield from part.to_batches()
        return
    yield from repeated(found.beside).select(columns).to_batches()
    for batch, counted in found.batches():
        chosen = batch.select(list(columns))
        yield chosen if counted is None else chosen.filter(pa.array(counted))
