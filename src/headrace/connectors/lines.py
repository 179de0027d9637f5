"""Changes as lines of JSON: ``{"epoch": 7, "op": "+I", "weight": 1, "row": {...}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.serving import OPERATION, with_operations
from headrace.serving.json_columns import Encoded, json_objects
from headrace.zset import WEIGHT, row_codes
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of changes; an update is one change of two lines.

    ``starts`` has the index of each change's first line, then the number of lines.
    """

    texts: pa.StringArray
    starts: NDArray[np.int64]

    @property
    def changes(self) -> int:
        """The number of changes."""
        return len(self.starts) - 1

    def of_changes(self, start: int, stop: int) -> list[str]:
        """Return the lines of the changes in ``[start, stop)``."""
        first = int(self.starts[start])
        found: list[str] = self.texts.slice(first, int(self.starts[stop]) - first).to_pylist()
        return found

    def cut(self, changes: int) -> Iterator[Lines]:
        """Yield slices of at most ``changes`` changes."""
        for at in range(0, self.changes, changes):
            starts = self.starts[at : at + changes + 1]
            texts = self.texts.slice(int(starts[0]), int(starts[-1] - starts[0]))
            yield Lines(texts, starts - starts[0])


def change_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Lines:
    """Return the lines of an epoch's changes, a table of rows with weights.

    A retraction and an insertion of one key are an update. Values are encoded as by
    :func:`headrace.serving.values.json_value`: NaN and infinities as text, since JSON has no
    number for them.
    """
    ordered = with_operations(changes, key)
    rows = ordered.num_rows
    row = {n: ordered[n] for n in ordered.column_names if n not in (OPERATION, WEIGHT)}
    fields = {
        "epoch": pa.array(np.full(rows, epoch, np.int64)),
        "op": ordered[OPERATION],
        "weight": ordered[WEIGHT],
        "row": Encoded(json_objects(row, rows)),
    }
    begins = pc.not_equal(ordered[OPERATION], "+U").to_numpy().astype(bool)
    starts = np.append(np.flatnonzero(begins), rows)
    return Lines(json_objects(fields, rows), starts)


def json_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """Yield the changes of an epoch as lines of JSON; see :func:`change_lines`."""
    yield from change_lines(epoch, changes, key).texts.to_pylist()


def lines_of_keys(epoch: int, changes: pa.Table, rows: pa.Table, key: Sequence[str]) -> list[str]:
    """Return, for each row of ``rows``, the last line among the changes of its key.

    ``rows`` has the columns of the key, and each key once; ``changes`` has all changes of these
    keys.
    """

    def codes(of: pa.Table) -> NDArray[np.int64]:
        both = pa.concat_tables([rows.select(list(key)), of.select(list(key))])
        return row_codes([column(both, name) for name in key], both.num_rows)

    found = codes(changes)
    wanted = found[: rows.num_rows]
    changed = changes.filter(pa.array(np.isin(found[rows.num_rows :], wanted)))
    texts = change_lines(epoch, changed, key).texts.to_pylist()
    ordered = codes(with_operations(changed, key))
    last = dict(zip(ordered[rows.num_rows :].tolist(), texts, strict=True))
    return [last[code] for code in ordered[: rows.num_rows].tolist()]
