"""The driver of sinks into stores by key, over a store in memory."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors import sink_histories as histories
from headrace.errors import Code, HeadraceError
from headrace.io.connectors.stores import StoreSink, another_session, check
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.io.connectors import SinkContext


@dataclass
class Memory:
    """A store of rows by id; the server refuses and fails as a test says."""

    context: SinkContext = field(default_factory=lambda: histories.context(Path()))
    items: dict[int, dict[str, Any]] = field(default_factory=dict)
    mark: dict[str, Any] = field(default_factory=dict)
    refuses: frozenset[int] = frozenset()
    fails: bool = False
    changed: bool = False
    opened: int = 0
    closed: int = 0
    system: str = "memory"
    guarantee: str = "exact effect"
    target: str = "the memory"
    removal: str = "its mark"

    def prepare(self) -> str | None:
        return self.mark.get("owner")

    def begin(self) -> MemorySession | None:
        if self.mark.setdefault("owner", self.context.identity) != self.context.identity:
            return None
        self.opened += 1
        self.mark["session"] = self.opened
        return MemorySession(self, self.opened, self.mark.get("epoch"))

    @contextmanager
    def failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HeadraceError(Code.UNAVAILABLE, str(error)) from error


@dataclass
class MemorySession:
    store: Memory
    name: int
    epoch: Epoch | None
    key: tuple[str, ...] = ("id",)

    def begin(self) -> None:
        pass

    def unfit(self, rows: pa.Table) -> dict[int, str]:
        names = rows["name"].to_pylist()
        return {at: "poison" for at, name in enumerate(names) if name == histories.POISON}

    def put(self, _epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        if self.store.fails:
            raise ConnectionError("no answer")
        refused = {}
        for at, row in enumerate(rows.to_pylist()):
            if row["id"] in self.store.refuses:
                refused[at] = "the server refuses it"
            else:
                self.store.items[row["id"]] = row
        return refused

    def remove(self, _epoch: Epoch, keys: pa.Table) -> dict[int, str]:
        for id_ in keys["id"].to_pylist():
            self.store.items.pop(id_, None)
        return {}

    def changed(self) -> bool:
        return self.store.changed

    def finish(self, epoch: Epoch, refused: str) -> None:
        if self.store.mark["session"] != self.name or self.store.mark.get("epoch") != self.epoch:
            raise another_session(self.store)
        self.store.mark |= {"epoch": epoch, "refused": refused}

    def refused(self) -> str | None:
        return self.store.mark.get("refused")

    def rows(self) -> Iterator[pa.Table]:
        for row in list(self.store.items.values()):
            yield histories.table([(tuple(row.values()), 1)]).select(list(row))

    def clear(self) -> None:
        self.store.items.clear()
        self.store.mark.pop("epoch", None)

    def close(self) -> None:
        self.store.closed += 1


def rows(*ids: int | None, poison: frozenset[int] = frozenset()) -> pa.Table:
    """Return insertions of rows."""
    random_ = random.Random(1)
    made = [histories.row(random_, id_, poison=id_ in poison) for id_ in ids]  # type: ignore[arg-type]
    return histories.table([(row, 1) for row in made])


def test_a_row_is_refused_at_its_own_place_whoever_refuses_it() -> None:
    store = Memory(refuses=frozenset({4, 6}))
    sink = StoreSink(store)
    refused = sink.write(Epoch(1), [rows(1, None, 3, 4, 5, 6, poison=frozenset({3}))])
    assert [(json.loads(each.row)["row"]["id"], each.why) for each in refused] == [
        (None, "a column of its key is NULL"),
        (3, "poison"),
        (4, "the server refuses it"),
        (6, "the server refuses it"),
    ]
    assert set(store.items) == {1, 5}
    assert (sink.durable(), sink.last_refused()) == (1, refused)
    stored = sink.stored()
    assert stored is not None
    assert sorted(row["id"] for part in stored for row in part.to_pylist()) == [1, 5]
    sink.clear()
    assert (store.items, sink.durable()) == ({}, None)


def test_an_epoch_with_a_refused_row_is_not_recorded_by_a_sink_that_stops() -> None:
    stopping = Memory(replace(histories.context(Path()), stops=True), refuses=frozenset({2}))
    sink = StoreSink(stopping)
    assert len(sink.write(Epoch(1), [rows(1, 2)])) == 1
    assert sink.durable() is None


def test_a_failure_ends_the_session_and_the_next_use_begins_another() -> None:
    store = Memory(fails=True)
    sink = StoreSink(store)
    with pytest.raises(HeadraceError, match="no answer"):
        sink.write(Epoch(1), [rows(1)])
    assert (store.opened, store.closed) == (1, 1)
    store.fails = False
    sink.write(Epoch(1), [rows(1)])
    assert (store.opened, store.closed, store.mark["epoch"]) == (2, 1, 1)
    other = StoreSink(store)
    other.durable()
    with pytest.raises(HeadraceError, match="another session writes") as error:
        sink.write(Epoch(2), [rows(2)])
    assert error.value.code is Code.UNAVAILABLE


def test_rows_are_not_refused_because_the_table_was_changed() -> None:
    store = Memory(refuses=frozenset({2}), changed=True)
    with pytest.raises(HeadraceError, match="the memory was changed") as error:
        StoreSink(store).write(Epoch(1), [rows(1, 2)])
    assert error.value.code is Code.UNAVAILABLE
    assert "epoch" not in store.mark


def test_a_place_has_one_sink() -> None:
    store = Memory(mark={"owner": "another/1"})
    for refused in (lambda: check(store), lambda: StoreSink(store).durable()):
        with pytest.raises(HeadraceError, match="belongs to another sink") as error:
            refused()
        assert error.value.code is Code.CONFLICT
    keyless = Memory(replace(histories.context(Path()), key=()))
    with pytest.raises(HeadraceError, match="a sink into memory is written by key"):
        check(keyless)
