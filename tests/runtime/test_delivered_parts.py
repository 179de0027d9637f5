"""What a sink is given of stored runs: small parts that do not cut a key in two, and their sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from headrace.ledger import DeliveryRecord
from headrace.runtime.deliveries import Delivery, DeliverySettings
from headrace.zset import WEIGHT
from runtime.pure import Outside, PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.runtime.ports import Refused
    from headrace.types import Epoch

_MOST = 8


@dataclass
class Measured(Outside):
    """Remembers how large the parts were, and that each key is in one of them."""

    sizes: list[int] = field(default_factory=list)

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[Refused]:
        seen: set[int] = set()
        found: Counter[tuple[int, int]] = Counter()
        for part in parts:
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
    record = db.ledger.deliveries()[sink.id]
    delivery = Delivery(db.loop, record, db.history(view.id), outside, settings)
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
    last = again.ledger.last_epoch()
    assert again.ledger.deliveries()[sink.id] == DeliveryRecord(
        sink.id, record.begins, last, written=last
    )
    again.close()
