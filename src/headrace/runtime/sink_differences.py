"""Compare the rows in a sink's target with those of its view, in constant memory.

The rows of both sides are written as runs, those of the target with their weights negated: the sum
of the runs is what is missing there, minus what is too much: the delta that repairs the target.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.log.seen import ids_of
from headrace.runtime.cancelling import check_cancelled
from headrace.spine import Spine, SpineParts, remove_packs, write_run
from headrace.zset import WEIGHT, Layout, ZSet, row_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.spine import RunFile

_RUN_ROWS = 1 << 18
"""How many rows are sorted at a time."""
_RUN_BYTES: Final = 1 << 28
"""How many bytes of rows are sorted at a time, and at least a part."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a comparison has found.

    ``missing`` rows of the view are not in the target, ``extra`` rows of the target are not in the
    view; rows of one key that are not equal are ``different``. ``rows`` is how many the view has.
    ``refused`` is how many of these the target has refused, if they were written.
    """

    rows: int
    missing: int = 0
    different: int = 0
    extra: int = 0
    refused: int = 0

    @property
    def differences(self) -> int:
        """The number of rows, or of keys, that differ."""
        return self.missing + self.different + self.extra


@dataclass(frozen=True, slots=True)
class SinkDifference:
    """The rows of a view minus those of a target; without a ``key``, as bags."""

    spine: Spine
    key: tuple[str, ...]
    rows: int

    @classmethod
    @contextmanager
    def of(
        cls,
        directory: Path,
        columns: pa.Schema,
        key: Sequence[str],
        view: Iterable[pa.Table],
        target: Iterable[pa.Table],
    ) -> Iterator[SinkDifference]:
        """Compare rows of a view, with weights, with those of a target.

        Files are kept in a directory during the block.
        """
        by = tuple(key) or tuple(f.name for f in columns if not pa.types.is_nested(f.type))
        layout = Layout(by, columns, pa.schema([pa.field(WEIGHT, pa.int64())]))
        total = 0

        def counted() -> Iterator[pa.Table]:
            nonlocal total
            for part in view:
                total += part.num_rows
                yield part

        files: list[RunFile] = []
        with TemporaryDirectory(dir=directory) as name:
            place = Path(name)
            try:
                for part in chain(_gathered(counted()), _gathered(map(_negative, target))):
                    check_cancelled()
                    rows = _hashed(layout, part).consolidated()
                    if rows.rows:
                        files.append(write_run(place, rows))
                yield cls(Spine.open(place, layout, files), tuple(key), total)
            finally:
                remove_packs(place, [file.pack for file in files])

    def parts(self, most: int) -> SpineParts:
        """Return the changes that would repair the target, those of a key in one part."""
        return SpineParts(self.spine, most)

    def counted(self) -> Agreement:
        """Return how many rows differ, and how."""
        missing = different = extra = 0
        for part in self.spine.scan(_RUN_ROWS, batch_bytes=_RUN_BYTES):
            weights = part.weights
            if not self.key:
                missing += int(weights[weights > 0].sum())
                extra -= int(weights[weights < 0].sum())
                continue
            codes = row_codes(part.keys, part.rows)
            wanted, found = np.unique(codes[weights > 0]), np.unique(codes[weights < 0])
            both = len(np.intersect1d(wanted, found, assume_unique=True))
            different += both
            missing += len(wanted) - both
            extra += len(found) - both
        return Agreement(self.rows, missing, different, extra)


def _negative(part: pa.Table) -> pa.Table:
    return part.append_column(WEIGHT, pa.array(np.full(part.num_rows, -1, np.int64)))


def _gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of parts in larger ones, so that there are few runs."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        waiting.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= _RUN_ROWS or size >= _RUN_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _hashed(layout: Layout, rows: pa.Table) -> ZSet:
    """Return rows with a hash of the key that only depends on its values."""
    typed = [rows[field.name].cast(field.type) for field in layout.columns]
    given = pa.Table.from_arrays(typed, names=layout.columns.names)
    hashes = np.zeros(rows.num_rows, np.int64)
    if layout.key:
        (first, _), _ = ids_of(given, layout.key)
        hashes = first.view(np.int64)
    arrays = [pa.array(hashes), *typed, rows[WEIGHT]]
    return ZSet(layout, pa.Table.from_arrays(arrays, schema=layout.schema))
