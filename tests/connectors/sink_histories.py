"""Random histories of keyed rows, delivered to a sink that is killed at any point: for each target.

A history is epochs of changes, held in memory, as a view's changelog would give them. It is
delivered by a real `Delivery` with the writer under test. Whatever is raised at a fault point ends
the delivery as the end of the process does: the next one has only what the ledger has.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import Delivery, DeliverySettings
from headrace.execution.runtime.delivery_position import DeliveryPosition
from headrace.io.connectors import SinkContext
from headrace.storage.ledger import DeliveryRecord
from headrace.types import Column, Epoch, RelationId, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.ports import SinkWriter
    from headrace.io.connectors import Secrets
    from headrace.storage.ledger import Reject

SCHEMA = Schema(
    (
        Column("id", t.LongType(), nullable=False),
        Column("name", t.StringType()),
        Column("amount", t.DecimalType(12, 2)),
        Column("at", t.TimestampType()),
        Column("ok", t.BooleanType()),
    )
)
KEY = ("id",)
POISON = "poison"
"""The name of rows that a target under test is made to refuse."""

Row = tuple[Any, ...]
_STAGES = ("sink", "in a part", "sink written", "recording", "recorded")


class Killed(BaseException):
    """The process has ended here."""


@dataclass(frozen=True)
class Given:
    """Secrets by name, as a connector asks for them."""

    values: Mapping[str, str]

    def value(self, name: str) -> str:
        """Return the value of a secret."""
        return self.values[name]


def context(
    directory: Path, secrets: Mapping[str, str] | None = None, *, stops: bool = False
) -> SinkContext:
    """Return what a writer of these histories is opened with."""
    given = cast("Secrets", Given(secrets or {}))
    return SinkContext(directory, SCHEMA, KEY, given, "histories/7", stops)


def row(random_: random.Random, id_: int, *, poison: bool = False) -> Row:
    """Return a new row of a key."""
    second = random_.randrange(1, 10**8)
    return (
        id_,
        POISON if poison else random_.choice(["", "ann", "b'o\"b", "ß\\\n\t,", None]),
        random_.choice([None, Decimal(random_.randrange(-(10**6), 10**6)) / 100]),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second, microseconds=7),
        random_.choice([True, False, None]),
    )


@dataclass
class Histories:
    """A table by key whose changes are kept by epoch; parts are cut between keys."""

    rows: dict[int, Row] = field(default_factory=dict)
    epochs: dict[Epoch, list[tuple[Row, int]]] = field(default_factory=dict)
    last: Epoch = field(default=Epoch(0))

    def change(self, changed: Mapping[int, Row | None]) -> None:
        """Make an epoch that sets the rows of some keys, or deletes them."""
        self.last = Epoch(self.last + 1)
        changes: list[tuple[Row, int]] = []
        for id_, new in changed.items():
            old = self.rows.pop(id_, None)
            if new is not None:
                self.rows[id_] = new
            if old != new:
                changes += [(old, -1)] if old is not None else []
                changes += [(new, 1)] if new is not None else []
        self.epochs[self.last] = changes

    def at(self, epoch: Epoch) -> Counter[Row]:
        """Return the rows at an epoch."""
        total: Counter[Row] = Counter()
        for number, changes in self.epochs.items():
            for row_, weight in changes if number <= epoch else ():
                total[row_] += weight
        return Counter({row_: weight for row_, weight in total.items() if weight})

    def snapshot(self, epoch: Epoch, most: int) -> Iterator[pa.Table]:
        """Yield the rows at an epoch."""
        yield from self.delta(Epoch(-1), epoch, most)

    def rows_at(self, epoch: Epoch) -> int:
        """Return how many rows the snapshot reads."""
        return self.at(epoch).total()

    def changed(self, after: Epoch, upto: Epoch) -> Sequence[Epoch]:
        """Return the epochs with changes."""
        return [e for e, changes in sorted(self.epochs.items()) if after < e <= upto and changes]

    def delta(self, after: Epoch, upto: Epoch, most: int) -> Iterator[pa.Table]:
        """Yield the sum of the changes."""
        total: Counter[Row] = Counter()
        for epoch in self.changed(after, upto):
            for row_, weight in self.epochs[epoch]:
                total[row_] += weight
        changes = [(row_, weight) for row_, weight in total.items() if weight]
        ids = sorted({row_[0] for row_, _ in changes}, key=lambda id_: id_ * 7919 % 1009)
        for start in range(0, len(ids), max(1, most // 2)):
            chosen = set(ids[start : start + max(1, most // 2)])
            yield table([(r, w) for r, w in changes if r[0] in chosen])

    def rows_changed(self, after: Epoch, upto: Epoch) -> int:
        """Return how many rows the changes have."""
        return sum(len(self.epochs[epoch]) for epoch in self.changed(after, upto))


def table(changes: Sequence[tuple[Row, int]]) -> pa.Table:
    """Return changes as a writer gets them."""
    arrays = [
        pa.array([row_[place] for row_, _ in changes], field_.type)
        for place, field_ in enumerate(SCHEMA.arrow)
    ]
    weights = pa.array(np.array([weight for _, weight in changes], np.int64))
    return pa.table([*arrays, weights], schema=SCHEMA.arrow.append(pa.field(WEIGHT, pa.int64())))


@dataclass
class Outlived:
    """What outlives a killed delivery: the ledger's record, and the rows that were refused."""

    histories: Histories
    record: DeliveryRecord
    refused: list[Reject] = field(default_factory=list)
    fault: Callable[[str], None] = lambda _stage: None
    held: dict[RelationId, Epoch] = field(default_factory=dict)
    directory: Path | None = None
    """Where a comparison keeps its files: it has a directory ``attempts``."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def ledger(self) -> Outlived:
        """Stands for the ledger, and below for its head and its parts."""
        return self

    head = rejects = epochs = deliveries = ledger

    @property
    def published(self) -> Outlived:
        """Stands for the publisher."""
        return self

    @property
    def current(self) -> Outlived:
        """Stands for the published state."""
        return self

    @property
    def epoch(self) -> Epoch:
        """The last epoch."""
        return self.histories.last

    def count(self, _sink: RelationId) -> int:
        """Return how many rows were refused."""
        return len(self.refused)

    def put(
        self, record: DeliveryRecord, refused: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store the record, with the rows that were refused."""
        self.fault("recording")
        if record.clears or forgets:
            self.refused.clear()
        self.record = record
        self.refused += refused
        self.fault("recorded")

    def exclusive(self) -> AbstractContextManager[None]:
        """Stands for the lock of epochs."""
        return nullcontext()

    between = exclusive

    def commit(self, _commit: object) -> Epoch:
        """Make an epoch in which nothing changes."""
        self.histories.change({})
        return self.histories.last

    def committed_at(self, epoch: Epoch) -> float:
        """Return when an epoch was committed."""
        assert epoch <= self.histories.last
        return time.time()

    def wake(self) -> None:
        """Have who waits look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition is met."""
        with self._changed:
            return self._changed.wait_for(met, seconds)

    def delivery(self, writer: SinkWriter, settings: DeliverySettings) -> Delivery:
        """Return a delivery that goes on with what was stored."""
        loop = cast("EpochLoop", self)
        return Delivery(
            loop, DeliveryPosition(loop, self.record), _Cut(self), cast("Any", writer), settings
        )


@dataclass
class _Cut:
    """A changelog during whose parts the process may end."""

    outlived: Outlived

    def snapshot(self, epoch: Epoch, most: int) -> Iterator[pa.Table]:
        yield from self._cut(self.outlived.histories.snapshot(epoch, most))

    def rows_at(self, epoch: Epoch) -> int:
        return self.outlived.histories.rows_at(epoch)

    def changed(self, after: Epoch, upto: Epoch) -> Sequence[Epoch]:
        return self.outlived.histories.changed(after, upto)

    def delta(self, after: Epoch, upto: Epoch, most: int) -> Iterator[pa.Table]:
        yield from self._cut(self.outlived.histories.delta(after, upto, most))

    def rows_changed(self, after: Epoch, upto: Epoch) -> int:
        return self.outlived.histories.rows_changed(after, upto)

    def _cut(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for part in parts:
            yield part
            self.outlived.fault("in a part")


def begun(histories: Histories) -> Outlived:
    """Return the record of a sink that begins at the last epoch."""
    return Outlived(histories, DeliveryRecord(RelationId(7), histories.last))


def prove(
    open_writer: Callable[[], SinkWriter],
    read_target: Callable[[], Counter[Row]],
    *,
    seed: int = 0,
    epochs: int = 30,
    kills: int = 10,
    settings: DeliverySettings | None = None,
    killed: Callable[[int], None] = lambda _number: None,
) -> Outlived:
    """Deliver a random history, killed ``kills`` times; the target has the view's rows in the end.

    ``open_writer`` is called for each life of the process; ``read_target`` returns the rows that
    the target has, in the order of the columns of `SCHEMA`. ``killed`` is called after each kill,
    with its number, and may stop the server and start it again.
    """
    random_ = random.Random(seed)
    histories = Histories()
    histories.change({id_: row(random_, id_) for id_ in range(20)})
    outlived = begun(histories)
    given = settings or DeliverySettings(part_rows=6)
    lives = [random_.choice(_STAGES) for _ in range(kills)]
    delivery = outlived.delivery(open_writer(), given)
    for number in range(max(epochs, kills)):
        ids = random_.sample(range(30), random_.randrange(1, 12))
        histories.change({id_: random_.choice([None, row(random_, id_)]) for id_ in ids})
        if number < len(lives):
            _kill_at(outlived, lives[number], random_.randrange(1, 3))
            try:
                deliver(delivery)
            except Killed:
                killed(number)
                delivery = outlived.delivery(open_writer(), given)
            outlived.fault = _nothing
        elif random_.random() < 0.5:
            deliver(delivery)
            assert read_target() == histories.at(histories.last)
    deliver(delivery)
    assert read_target() == histories.at(histories.last)
    assert outlived.record.delivered is not None
    delivery.writer.close()
    return outlived


def _nothing(_stage: str) -> None:
    """Do not fail."""


def _kill_at(outlived: Outlived, stage: str, after: int) -> None:
    left = {"times": after}

    def fault(reached: str) -> None:
        if reached == stage:
            left["times"] -= 1
            if left["times"] == 0:
                raise Killed(stage)

    outlived.fault = fault


def deliver(delivery: Delivery, seconds: float = 60.0) -> None:
    """Deliver everything, trying again while the target is out of reach."""
    until = time.monotonic() + seconds
    while True:
        try:
            delivery.advance()
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return
