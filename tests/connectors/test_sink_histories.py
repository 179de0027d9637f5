"""Deliveries, killed at any point, with targets in memory; and the helpers of writers."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sink_histories import (
    KEY,
    POISON,
    SCHEMA,
    Histories,
    Row,
    begun,
    prove,
    row,
    table,
)
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.execution.runtime.offenders import offenders
from headrace.execution.runtime.ports import RefusedRow
from headrace.execution.serving import by_key
from headrace.io.connectors.plain import Unrecorded
from headrace.io.connectors.sinks import json_lines, moved_on
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass
class Upserted(Unrecorded):
    """Rows by key, as they are now: writing again has no further effect."""

    rows: dict[int, Row] = field(default_factory=dict)
    down: bool = False
    guarantee: str = "exact effect: rows by key"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        refused = []
        for part in parts:
            if self.down:
                raise HeadraceError(Code.UNAVAILABLE, "it does not answer")
            assert part.num_rows <= 12
            written, deleted = by_key(part, KEY)
            for new in written.to_pylist():
                if new["name"] == POISON:
                    (line,) = json_lines(epoch, table([(tuple(new.values()), 1)]), KEY)
                    refused.append(RefusedRow(line, "no poison"))
                    continue
                self.rows[new["id"]] = tuple(new.values())
            for gone in deleted.to_pylist():
                self.rows.pop(gone["id"], None)
        return refused

    def clear(self) -> None:
        self.rows.clear()

    def read(self) -> Counter[Row]:
        return Counter(self.rows.values())


@dataclass
class Recorded(Upserted):
    """Adds up changes in one step with the epoch: each may be written once only."""

    total: Counter[Row] = field(default_factory=Counter)
    epoch: Epoch | None = None
    kept: tuple[RefusedRow, ...] = ()
    stops: bool = False

    def durable(self) -> Epoch | None:
        return self.epoch

    def last_refused(self) -> Sequence[RefusedRow]:
        return self.kept

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        total, refused = Counter(self.total), []
        for part in parts:
            for change in part.to_pylist():
                weight = change.pop(WEIGHT)
                if change["name"] == POISON and weight > 0:
                    refused.append(RefusedRow(str(change), "no poison"))
                elif change["name"] != POISON:
                    total[tuple(change.values())] += weight
        if refused and self.stops:
            return refused
        self.total, self.epoch, self.kept = total, epoch, tuple(refused)
        return refused

    def clear(self) -> None:
        self.total.clear()
        self.epoch = None

    def read(self) -> Counter[Row]:
        return Counter({row_: n for row_, n in self.total.items() if n})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("target", [Upserted, Recorded])
def test_a_target_has_the_rows_of_the_view_however_often_the_delivery_is_killed(
    target: type[Upserted], seed: int, *, joins: bool
) -> None:
    there = target()
    settings = DeliverySettings(part_rows=6, joins=joins)
    prove(lambda: there, there.read, seed=seed, settings=settings)


def poisoned() -> Histories:
    histories, some = Histories(), random.Random(1)
    histories.change({id_: row(some, id_) for id_ in range(4)})
    histories.change({2: row(some, 2, poison=True), 5: row(some, 5)})
    histories.change({6: row(some, 6)})
    return histories


def clean(histories: Histories) -> Counter[Row]:
    return Counter({r: n for r, n in histories.at(histories.last).items() if r[1] != POISON})


def test_a_row_that_is_refused_is_kept_once_and_the_rest_goes_on() -> None:
    histories, there = poisoned(), Recorded()
    outlived = begun(histories)
    outlived.record = type(outlived.record)(outlived.record.sink, Epoch(1))
    for stage in ("sink written", "recorded"):
        outlived.fault = _raising(stage)
        with pytest.raises(KeyboardInterrupt):
            outlived.delivery(there, DeliverySettings()).advance()
    outlived.fault = lambda _stage: None
    again = outlived.delivery(there, DeliverySettings())
    again.advance()
    assert there.read() == clean(histories)
    ((file, why),) = [(each.file, each.reason) for each in outlived.refused]
    assert (file, why, again.refused) == ("epoch 2", "no poison", 1)


def _raising(stage: str) -> Any:
    def fault(reached: str) -> None:
        if reached == stage:
            raise KeyboardInterrupt

    return fault


def test_a_sink_stops_at_a_row_that_is_refused_until_it_is_resumed() -> None:
    histories, there = poisoned(), Recorded(stops=True)
    outlived = begun(histories)
    outlived.record = type(outlived.record)(outlived.record.sink, Epoch(1))
    delivery = outlived.delivery(there, DeliverySettings(stops=True))
    delivery.advance()
    assert (delivery.state, delivery.at) == ("stopped", 1)
    assert "no poison" in (outlived.record.why or "")
    assert not delivery.advance()
    histories.epochs[Epoch(2)] = [(r, w) for r, w in histories.epochs[Epoch(2)] if r[1] != POISON]
    restarted = outlived.delivery(there, DeliverySettings(stops=True))
    assert restarted.state == "stopped"
    restarted.resume()
    restarted.advance()
    assert (restarted.state, there.read()) == ("running", clean(histories))
    assert outlived.refused == []


def test_a_sink_that_is_paused_gets_nothing_and_one_that_is_reset_begins_anew() -> None:
    histories, there = Histories(), Recorded()
    some = random.Random(2)
    histories.change({id_: row(some, id_) for id_ in range(9)})
    outlived = begun(histories)
    delivery = outlived.delivery(there, DeliverySettings(part_rows=2))
    delivery.advance()
    delivery.pause()
    histories.change({1: row(some, 1)})
    assert not delivery.advance()
    assert (delivery.state, delivery.lag.epochs, delivery.lag.rows) == ("paused", 1, 2)
    restarted = outlived.delivery(there, DeliverySettings(part_rows=2))
    assert not restarted.advance()
    there.total[row(some, 77)] += 1  # somebody else has written there
    restarted.reset()
    for stage in ("sink cleared", "in a part", "sink written"):
        outlived.fault = _raising(stage)
        with pytest.raises(KeyboardInterrupt):
            restarted.advance()
        restarted = outlived.delivery(there, DeliverySettings(part_rows=2))
    outlived.fault = lambda _stage: None
    restarted.advance()
    assert there.read() == histories.at(histories.last)
    assert not outlived.record.clears


def test_changes_only_leaves_the_first_rows_out() -> None:
    histories, there = Histories(), Upserted()
    some = random.Random(3)
    histories.change({id_: row(some, id_) for id_ in range(9)})
    delivery = begun(histories).delivery(there, DeliverySettings(snapshot=False))
    delivery.advance()
    assert not there.rows
    histories.change({3: row(some, 3), 4: None})
    delivery.advance()
    assert there.rows == {3: histories.rows[3]}


def test_a_delivery_goes_on_in_the_background_when_the_target_is_back_and_its_memory_is_flat() -> (
    None
):
    histories, there = Histories(), Upserted(down=True)
    some = random.Random(4)
    for _ in range(40):
        histories.change({id_: row(some, id_) for id_ in range(9)})
    outlived = begun(histories)
    outlived.record = type(outlived.record)(outlived.record.sink, Epoch(1))
    delivery = outlived.delivery(there, DeliverySettings(part_rows=4))
    delivery.start()
    assert outlived.wait_for(lambda: delivery.state == "failing", 0.05) or _soon(
        lambda: delivery.state == "failing"
    )
    assert delivery.lag.epochs == 40
    there.down = False
    delivery.resume()  # does not wait for the next attempt
    assert _soon(lambda: delivery.at == histories.last)
    assert there.read() == histories.at(histories.last)
    delivery.close()


def test_the_lag_is_that_of_one_position_while_the_delivery_goes_on() -> None:
    histories, some = Histories(), random.Random(5)
    histories.change({id_: row(some, id_) for id_ in range(3)})
    delivery = begun(histories).delivery(Upserted(), DeliverySettings())
    delivery.advance()
    for id_ in range(3):
        histories.change({id_: None})
    changelog = delivery.changelog

    class Meanwhile:
        def rows_changed(self, after: Epoch, upto: Epoch) -> int:
            delivery.changelog = changelog
            delivery.advance()
            return changelog.rows_changed(after, upto)

    delivery.changelog = Meanwhile()  # type: ignore[assignment]
    lag = delivery.lag
    assert (delivery.at, lag.epochs, lag.rows) == (histories.last, 3, 3)
    assert delivery.lag.epochs == 0


def _soon(met: Any, seconds: float = 10.0) -> bool:
    import time

    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(met())


def test_a_target_that_is_ahead_of_the_database_is_left_alone() -> None:
    histories, there = poisoned(), Recorded(epoch=Epoch(99))
    with pytest.raises(HeadraceError, match="has not made") as caught:
        begun(histories).delivery(there, DeliverySettings()).advance()
    assert caught.value.code is Code.CONFLICT
    assert not there.total


@dataclass
class Kept(Recorded):
    """A target that never forgets the epoch that it records."""

    target: str = "a kept target"


def test_a_target_that_has_lost_changes_is_left_alone_until_somebody_decides() -> None:
    histories, there = poisoned(), Kept()
    outlived = begun(histories)
    outlived.delivery(there, DeliverySettings()).advance()
    before = there.epoch
    for _ in range(40):  # nothing changes for long: the position moves on, the target does not
        histories.last = Epoch(histories.last + 1)
        outlived.delivery(there, DeliverySettings()).advance()
    assert there.epoch == before
    assert (outlived.record.delivered or 0) > (before or 0)
    there.epoch = None if before is None else Epoch(before - 1)  # restored to an earlier state
    histories.change({1: None})
    for _ in range(2):
        with pytest.raises(HeadraceError, match="a kept target has lost changes") as caught:
            outlived.delivery(there, DeliverySettings()).advance()
        assert caught.value.code is Code.CONFLICT
    delivery = outlived.delivery(there, DeliverySettings())
    delivery.reset()
    delivery.advance()
    assert there.epoch == outlived.record.written == histories.last


def test_a_statement_has_a_failed_delivery_tried_again_at_once() -> None:
    histories, there = Histories(), Denied()
    histories.change({1: row(random.Random(1), 1)})
    delivery = begun(histories).delivery(there, DeliverySettings())
    delivery.start()
    for _ in range(20):
        assert _soon(lambda: delivery.error is not None)  # the next attempt is in 7 s or more
        tried = there.tried
        delivery.resume()
        assert _soon(lambda before=tried: there.tried > before, 3.0)
    delivery.close()


@dataclass
class Denied(Upserted):
    """A target that has to be mended before it takes anything."""

    tried: int = 0

    def write(self, _epoch: Epoch, _parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        self.tried += 1
        raise HeadraceError(Code.INVALID, "it wants another password")


def test_what_a_target_lost_while_the_sink_runs_is_no_later_write_of_another_process() -> None:
    for there in (None, Epoch(3)):
        lost = moved_on("it", there, Epoch(4))
        assert (lost.code, "lost changes" in lost.primary) == (Code.CONFLICT, True)
    assert moved_on("it", Epoch(5), Epoch(4)).code is Code.UNAVAILABLE
    assert moved_on("it", Epoch(5), None).code is Code.UNAVAILABLE


@given(st.sets(st.integers(0, 40)), st.integers(0, 41))
def test_offenders_are_found_and_all_others_are_written(bad: set[int], count: int) -> None:
    written: list[int] = []

    def attempt(start: int, stop: int) -> str | None:
        if bad & set(range(start, stop)):
            return f"one of {start} to {stop}"
        written.extend(range(start, stop))
        return None

    found = offenders(count, attempt)
    assert list(found) == sorted(bad & set(range(count)))
    assert written == sorted(set(range(count)) - bad)


def test_the_changes_of_a_key_are_its_new_row_or_its_end() -> None:
    some = random.Random(5)
    old, new, gone, fresh = (row(some, id_) for id_ in (1, 1, 2, 3))
    changes = table([(new, 1), (gone, -1), (old, -1), (fresh, 1)])
    written, deleted = by_key(changes, KEY)
    assert [tuple(r.values()) for r in written.to_pylist()] == [new, fresh]
    assert deleted.to_pylist() == [{"id": 2}]
    assert written.schema == SCHEMA.arrow
    both = pa.table({"a": [None, None, 1.0], "b": ["x", "x", None], WEIGHT: [-1, 1, -1]})
    written, deleted = by_key(both, ("a", "b"))
    assert (written.num_rows, deleted.to_pylist()) == (1, [{"a": 1.0, "b": None}])
