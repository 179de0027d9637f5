"""What a sink is given of stored runs: small parts that do not cut a key in two, and their sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import Delivery, DeliverySettings, Lag, Writing
from headrace.execution.runtime.delivery_position import DeliveryPosition
from headrace.storage.ledger import DeliveryRecord
from runtime.pure import Outside, PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.types import Epoch

_MOST = 8


@dataclass
class Measured(Outside):
    """Remembers how large the parts were, and that each key is in one of them."""

    sizes: list[int] = field(default_factory=list)
    seen: Callable[[Epoch], None] = lambda _epoch: None

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        seen: set[int] = set()
        found: Counter[tuple[int, int]] = Counter()
        for part in parts:
            self.seen(epoch)
            keys = set(part["g"].to_pylist())
            assert not keys & seen
            seen |= keys
            self.sizes.append(part.num_rows)
            for row in part.to_pylist():
                found[row["g"], row["n"]] += row[WEIGHT]
        self.epochs[epoch] = found
        return ()


@pytest.mark.parametrize("joins", [False, True])
def test_parts_are_small_whole_keys_and_add_up(tmp_path: Path, *, joins: bool) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, [(k, k % 50, 1) for k in range(100)])
    while db.loop.pending():
        db.loop.advance()
    outside, sink = Measured(), db.create_sink(view)
    settings = DeliverySettings(part_rows=_MOST, joins=joins)
    record = db.ledger.deliveries.all()[sink.id]
    delivery = Delivery(
        db.loop, DeliveryPosition(db.loop, record), db.history(view.id), outside, settings
    )
    delivery.advance()
    assert len(outside.epochs) == 1
    assert outside.rows() == db.rows(view.id)
    for n in range(6):
        db.append(table, [(k, (k + n) % 40, 1) for k in range(100)])
        while db.loop.pending():
            db.loop.advance()
    assert delivery.lag.rows is not None
    assert delivery.lag.rows > 5 * _MOST
    before = len(outside.epochs)
    delivery.advance()
    assert outside.rows() == db.rows(view.id)
    assert max(outside.sizes) <= _MOST
    assert (len(outside.epochs) == before + 1) is joins
    assert delivery.lag.epochs == 0
    db.close()
    again = PureDatabase(tmp_path)
    last = again.ledger.head.epoch
    assert again.ledger.deliveries.all()[sink.id] == DeliveryRecord(
        sink.id, record.begins, last, written=last
    )
    again.close()


def test_parts_of_few_bytes_are_small_and_add_up(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, [(k, k, 1) for k in range(200)])
    while db.loop.pending():
        db.loop.advance()
    outside, sink = Measured(), db.create_sink(view)
    record, history = (
        db.ledger.deliveries.all()[sink.id],
        replace(db.history(view.id), part_bytes=500),
    )
    delivery = Delivery(db.loop, DeliveryPosition(db.loop, record), history, outside)
    delivery.advance()
    assert outside.rows() == db.rows(view.id)
    assert max(outside.sizes) * 16 <= 500
    assert len(outside.sizes) < 30
    db.append(table, [(k, k + 1000, 1) for k in range(200)])
    while db.loop.pending():
        db.loop.advance()
    delivery.advance()
    assert outside.rows() == db.rows(view.id)
    assert max(outside.sizes) * 16 <= 500
    db.close()


@pytest.mark.parametrize("first", [True, False])
def test_what_the_target_has_taken_is_counted_while_it_is_written(
    tmp_path: Path, *, first: bool
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    outside, sink = Measured(), db.create_sink(view)
    record, settings = db.ledger.deliveries.all()[sink.id], DeliverySettings(part_rows=_MOST)
    delivery = Delivery(
        db.loop, DeliveryPosition(db.loop, record), db.history(view.id), outside, settings
    )
    if not first:
        delivery.advance()
    outside.sizes.clear()
    db.append(table, [(k, k, 1) for k in range(100)])
    while db.loop.pending():
        db.loop.advance()
    if first:
        delivery.reset()
        assert delivery.lag.rows == 100
    found: list[tuple[Writing, int | None]] = []

    def seen(_epoch: Epoch) -> None:
        assert delivery.writing is not None
        found.append((delivery.writing, delivery.lag.rows))

    outside.seen = seen
    delivery.advance()
    before = [sum(outside.sizes[:n]) for n in range(len(outside.sizes))]
    assert len(before) > 100 / _MOST
    assert [writing.done for writing, _ in found] == before
    assert {writing.total for writing, _ in found} == {100}
    assert [rows for _, rows in found] == [100 - done for done in before]
    assert delivery.writing is None
    assert delivery.lag == Lag(0, 0, 0.0)
    db.close()


def test_a_paced_target_is_given_no_more_at_a_time_than_in_a_second() -> None:
    assert DeliverySettings(part_rows=50_000).most == 50_000
    assert DeliverySettings(part_rows=50_000, rows_per_second=200).most == 200
    assert DeliverySettings(part_rows=100, rows_per_second=200).most == 100


def test_nothing_is_counted_as_taken_of_a_write_that_failed(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, [(k, k, 1) for k in range(100)])
    while db.loop.pending():
        db.loop.advance()
    outside, sink = Measured(), db.create_sink(view)
    record, settings = db.ledger.deliveries.all()[sink.id], DeliverySettings(part_rows=_MOST)
    delivery = Delivery(
        db.loop, DeliveryPosition(db.loop, record), db.history(view.id), outside, settings
    )

    def broken(_epoch: Epoch) -> None:
        if delivery.writing is not None and delivery.writing.done > 50:
            raise HeadraceError(Code.UNAVAILABLE, "the target does not answer")

    outside.seen = broken
    with pytest.raises(HeadraceError, match="does not answer"):
        delivery.advance()
    assert (delivery.writing, delivery.lag.rows) == (None, 100)
    outside.seen = lambda _epoch: None
    delivery.advance()
    assert outside.rows() == db.rows(view.id)
    db.close()
