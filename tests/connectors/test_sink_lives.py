"""Any sequence of statements, failures and kills: a target that nobody spoils is the view, in the end.

One that somebody has spoilt is the view again once it was reconciled, or reset.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from connectors.sink_histories import KEY, SCHEMA, Histories, Killed, Row, begun, row, table
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.execution.serving import by_key
from headrace.io.connectors.plain import Unrecorded
from headrace.types import Epoch
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.execution.runtime.ports import RefusedRow

_IDS = 8
_STAGES = [None] * 4 + ["sink", "in a part", "sink written", "recording", "recorded"]
_CHANGED = st.dictionaries(st.integers(0, _IDS), st.booleans(), max_size=5)
"""Keys that are given another row, or none."""


@dataclass
class Store(Unrecorded):
    """Rows by key, each written as it comes."""

    rows: dict[int, Row] = field(default_factory=dict)
    guarantee: str = "exact effect"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        for part in parts:
            written, deleted = by_key(part, KEY)
            for new in written.to_pylist():
                self.put(epoch, new["id"], tuple(new.values()))
            for gone in deleted.to_pylist():
                self.put(epoch, gone["id"], None)
        return ()

    def put(self, _epoch: Epoch, id_: int, new: Row | None) -> None:
        self.rows.pop(id_, None)
        if new is not None:
            self.rows[id_] = new

    def stored(self) -> Iterator[pa.Table] | None:
        found = [(each, 1) for each in self.rows.values()]
        yield from (table(found[n : n + 3]).drop_columns([WEIGHT]) for n in range(0, len(found), 3))

    def clear(self) -> None:
        self.rows.clear()


@dataclass
class Conditional(Store):
    """Takes what is of a later epoch than the item that it has; deleted ones leave theirs."""

    epochs: dict[int, Epoch] = field(default_factory=dict)

    def put(self, epoch: Epoch, id_: int, new: Row | None) -> None:
        if self.epochs.get(id_, Epoch(-1)) < epoch:
            self.epochs[id_] = epoch
            super().put(epoch, id_, new)

    def clear(self) -> None:
        super().clear()
        self.epochs.clear()


@dataclass
class Transactional(Store):
    """Takes an epoch whole, once, and records it."""

    epoch: Epoch | None = None
    target: str = "a store in memory"

    def durable(self) -> Epoch | None:
        return self.epoch

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        assert self.epoch is None or self.epoch < epoch
        before = dict(self.rows)
        try:
            super().write(epoch, parts)
        except BaseException:
            self.rows = before
            raise
        self.epoch = epoch
        return ()

    def clear(self) -> None:
        super().clear()
        self.epoch = None


class Lives(RuleBasedStateMachine):
    """One sink, whatever is done to it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        (Path(self.folder.name) / "attempts").mkdir()
        self.store = open_store()
        self.random = random.Random(3)

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize(joins=st.booleans())
    def begin(self, *, joins: bool) -> None:
        self.histories, self.spoilt = Histories(), False
        self.histories.change({id_: row(self.random, id_) for id_ in range(4)})
        self.outlived = begun(self.histories)
        self.outlived.directory = Path(self.folder.name)
        self.settings = DeliverySettings(part_rows=4, joins=joins)
        self.restart()

    @rule()
    def restart(self) -> None:
        self.outlived.fault = lambda _stage: None
        self.delivery = self.outlived.delivery(self.store, self.settings)

    def until(self, stage: str | None, work: Callable[[], object]) -> bool:
        """Do some work, and return whether it was done: the process ends where it is killed."""

        def fault(reached: str) -> None:
            if reached == stage:
                raise Killed(stage)

        self.outlived.fault = fault
        try:
            work()
        except Killed:
            self.restart()
            return False
        self.outlived.fault = lambda _stage: None
        return True

    @rule(epochs=st.lists(_CHANGED, max_size=3), stage=st.sampled_from(_STAGES))
    def deliver(self, epochs: Sequence[Mapping[int, bool]], stage: str | None) -> None:
        for changed in epochs:
            self.histories.change(
                {id_: row(self.random, id_) if stays else None for id_, stays in changed.items()}
            )
        self.until(stage, self.delivery.advance)

    @rule(stage=st.sampled_from(_STAGES), goes_on=st.booleans())
    def pause(self, stage: str | None, *, goes_on: bool) -> None:
        self.until(stage, self.delivery.pause)
        if goes_on:
            self.until(stage, self.delivery.resume)

    @rule(stage=st.sampled_from([*_STAGES, "sink cleared"]), delivers=st.booleans())
    def reset(self, stage: str | None, *, delivers: bool) -> None:
        if self.until(stage if not delivers else None, self.delivery.reset) and delivers:
            done = self.until(stage, self.delivery.advance)
            self.spoilt = self.spoilt and not done
        self.spoilt = self.spoilt and not self.outlived.record.clears

    @rule(joins=st.booleans())
    def alter(self, *, joins: bool) -> None:
        self.settings = DeliverySettings(part_rows=4, joins=joins)
        self.delivery.change(self.store, self.settings)

    @rule(spoilt=_CHANGED, stage=st.sampled_from(_STAGES), write=st.booleans())
    def reconcile(self, spoilt: Mapping[int, bool], stage: str | None, *, write: bool) -> None:
        """Somebody else may have changed the target before."""
        for id_, stays in spoilt.items():
            self.store.rows.pop(id_, None)
            if stays:
                self.store.rows[id_] = row(self.random, id_)
            self.spoilt = True
        running = self.delivery.state == "running"
        found = []

        def work() -> None:
            found.append(self.delivery.reconcile(SCHEMA.arrow, KEY, write=write))

        try:
            if not self.until(stage, work):
                return
        except HeadraceError as error:
            assert error.code is Code.INVALID  # noqa: PT017 - it may also go well
            assert not running
            return
        epoch, agreement = found[0]
        assert self.spoilt or not agreement.differences
        if write:
            assert Counter(self.store.rows.values()) == self.histories.at(epoch)
            self.spoilt = False

    @rule()
    def settle(self) -> None:
        self.delivery.resume()
        self.delivery.advance()
        if not self.spoilt:
            assert Counter(self.store.rows.values()) == self.histories.at(self.histories.last)


@pytest.mark.parametrize("store", [Store, Conditional, Transactional])
def test_a_target_is_the_view_in_the_end(store: type[Store]) -> None:
    run_state_machine_as_test(
        lambda: Lives(store),
        settings=settings(
            max_examples=choose(12, 1000), stateful_step_count=30, deadline=None, derandomize=True
        ),
    )
