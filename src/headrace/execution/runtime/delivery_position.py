"""The position of a delivery: the last epoch that the ledger has recorded, and that of the target.

The record is stored after each write, in the transaction that keeps the rows that were refused. A
crash between the two has the same changes written again; a target that records epochs itself is not
given again what it has.

Compare the rows in a sink's target with those of its view, in constant memory.

The rows of both sides are written as runs, those of the target with their weights negated: the sum
of the runs is what is missing there, minus what is too much: the delta that repairs the target.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import Spine, SpineParts, remove_packs, write_run
from headrace.algebra.zset import WEIGHT, Layout, ZSet, row_codes
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.execution.runtime.ports import KeepsEpochs, KeepsRefused, lost_changes
from headrace.storage.ledger import DeliveryRecord, DeliveryState, Reject
from headrace.storage.log.seen import ids_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.ports import RefusedRow, SinkWriter
    from headrace.types import Epoch


_JOINED: Final = 64
"""How many epochs with changes are joined at most: each has files that are read together."""


@dataclass(slots=True)
class DeliveryPosition:
    """How far one sink has been given changes. ``at`` is the last epoch durable there, or None.

    ``record`` is what the ledger has of it; ``refused`` is how many rows the target has refused.
    """

    loop: EpochLoop
    record: DeliveryRecord
    at: Epoch | None = field(init=False)
    refused: int = field(init=False)
    _resumed: bool = False
    _first: bool = False
    """Whether the next write may be one that has failed before."""

    def __post_init__(self) -> None:
        """Resume at the stored position; keep the epochs that are not delivered yet."""
        self.at = self.record.delivered
        self.refused = self.loop.ledger.rejects.count(self.record.sink)
        self._hold()

    @property
    def is_running(self) -> bool:
        """Whether it is neither paused nor has stopped."""
        return self.record.state is DeliveryState.RUNNING

    def resume(self, writer: SinkWriter) -> None:
        """Before the first write, clear the target if requested, or continue at its recorded epoch.

        Raises:
            HeadraceError: CONFLICT if the target has changes that were never made, or has lost
                some.
        """
        if self.record.clears:
            writer.clear()
            self.loop.fault("sink cleared")
            self.put(replace(self.record, clears=False))
        if self._resumed:
            return
        there = self._durable(writer)
        if there is not None and there > self.loop.published.current.epoch:
            raise HeadraceError(
                Code.CONFLICT,
                f"the target has changes up to epoch {there}, which this database has not made",
                "The database was restored to an earlier state, or another one writes there.",
                "RESET SINK writes all rows of the view again.",
            )
        if there is not None and there > (-1 if self.at is None else self.at):
            kept = writer.last_refused() if isinstance(writer, KeepsRefused) else ()
            self.store(there, kept, written=there)
        self._resumed = self._first = True

    def interrupt(self) -> None:
        """Read the target's epoch again before the next write: the last one may be complete."""
        self._resumed = False

    def _durable(self, writer: SinkWriter) -> Epoch | None:
        """Return the last epoch that the target records.

        Raises:
            HeadraceError: ``conflict`` if that is an earlier one than it acknowledged.
        """
        there, written = writer.durable(), self.record.written
        if written is not None and self._lacks(writer, there) and isinstance(writer, KeepsEpochs):
            raise lost_changes(writer.target, there, written)
        return there

    def has_lost(self, writer: SinkWriter) -> bool:
        """Whether the target has acknowledged changes after those that it records."""
        return self._lacks(writer, writer.durable())

    def _lacks(self, writer: SinkWriter, there: Epoch | None) -> bool:
        written = self.record.written
        keeps = isinstance(writer, KeepsEpochs)
        return keeps and written is not None and (there is None or there < written)

    def steps(self, epochs: Sequence[Epoch], *, joins: bool) -> Sequence[Epoch]:
        """Return, among epochs with changes, those up to which changes are written together.

        What was begun before a failure comes first, up to the same epoch: among the changes up to
        another, some of those that were written may cancel. Others are written one by one, unless
        the sink ``joins`` them.
        """
        if self._first and epochs:
            self._first = False
            begun = self.record.writing
            upto = epochs[0] if begun is None or begun not in epochs else begun
            rest = [each for each in epochs if each > upto]
            return [upto, *self.steps(rest, joins=joins)]
        if not joins or not epochs:
            return epochs
        return [*epochs[_JOINED - 1 : -1 : _JOINED], epochs[-1]]

    def begin(self, epoch: Epoch) -> None:
        """Store that the changes up to an epoch are being written together."""
        if epoch != self.record.writing:
            self.put(replace(self.record, writing=epoch))

    def store(
        self,
        epoch: Epoch,
        refused: Sequence[RefusedRow] = (),
        *,
        written: Epoch | None = None,
        forgets: bool = False,
    ) -> None:
        """Store that the changes up to an epoch have been delivered, except for refused rows.

        ``written`` is that epoch if the target has acknowledged it. With ``forgets``, rows that
        were refused before are forgotten.
        """
        rejects = [
            Reject(f"epoch {epoch}", number, None, each.why, each.row)
            for number, each in enumerate(refused, 1)
        ]
        last = self.record.written if written is None else written
        record = replace(self.record, delivered=epoch, writing=None, written=last)
        self.put(record, rejects, forgets=forgets)
        self.at, self._first = epoch, False

    def delivering(self, epoch: Epoch) -> DeliveryRecord:
        """Return the record once the target has acknowledged the changes up to an epoch."""
        return replace(self.record, delivered=epoch, writing=None, written=epoch)

    def was_stored(self, record: DeliveryRecord) -> None:
        """Note that a record was stored with the changes that it says are delivered."""
        self.record, self.at, self._first = record, record.delivered, False
        self._hold()

    def stop(self, epoch: Epoch, refused: Sequence[RefusedRow]) -> None:
        """Store that the delivery has stopped at rows of an epoch."""
        first = refused[0]
        why = f"epoch {epoch}, {len(refused)} of its rows; the first is {first.row}: {first.why}"
        self.put(replace(self.record, state=DeliveryState.STOPPED, why=why))

    def reset(self) -> None:
        """Store that the delivery starts over with the rows of the last epoch."""
        begins = self.loop.published.current.epoch
        self.put(DeliveryRecord(self.record.sink, begins, clears=True))
        self.at, self.refused = None, 0

    def put(
        self, record: DeliveryRecord, rejects: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store a record with rows that were refused; see :meth:`store`."""
        self.loop.ledger.deliveries.put(record, rejects, forgets=forgets)
        self.record = record
        self.refused = len(rejects) + (0 if forgets else self.refused)
        self._hold()

    def _hold(self) -> None:
        """Hold the stored position, not the delivered one: a restart resumes there."""
        self.loop.held[self.record.sink] = self.record.held


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
