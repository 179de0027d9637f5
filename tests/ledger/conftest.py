"""A ledger with a clock that a test moves, and short ways to fill it."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from headrace.ledger import (
    EpochCommit,
    Ledger,
    NewArrangement,
    NewObject,
    NewRun,
    RunKind,
    SegmentFile,
    schema,
)
from headrace.types import ArrangementId, Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_numbers = itertools.count()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(arrangement: str, name: str | None = None, kind: RunKind = RunKind.DELTA) -> NewRun:
    return NewRun(
        name or f"run-{next(_numbers)}", ArrangementId(arrangement), 1, 10, "c", -5, 5, kind
    )


def segment(rows: int = 10) -> SegmentFile:
    return SegmentFile(f"segment-{next(_numbers)}", rows, 100, "c")


def relation(ledger: Ledger, name: str, inputs: tuple[RelationId, ...] = ()) -> NewObject:
    """A relation with one arrangement, ``"<id>/0"``."""
    reserved = ledger.reserve_relation()
    kept = (NewArrangement(ArrangementId(f"{reserved}/0"), {"key": ["a"]}),)
    return NewObject(reserved, name, "view", {"sql": name}, inputs, kept)


def step(ledger: Ledger, *runs: NewRun) -> Epoch:
    """Commit an epoch with these runs."""
    return ledger.commit(EpochCommit(ledger.last_epoch(), "attempt", runs=runs))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def postgres() -> str:
    """The URL of an empty PostgreSQL database for tests, emptied again; skips where none is."""
    url = os.environ.get("HEADRACE_TEST_POSTGRES")
    if url is None:
        pytest.skip("no PostgreSQL: set HEADRACE_TEST_POSTGRES to a database's URL")
    engine = sa.create_engine(url)
    schema.metadata.drop_all(engine)
    engine.dispose()
    return url


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> str | Path:
    """Where the test's ledger is: in SQLite, unless a test asks for PostgreSQL."""
    return postgres() if getattr(request, "param", "") == "postgresql" else tmp_path / "ledger.db"


@pytest.fixture
def ledger(address: str | Path, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(address, clock=clock) as opened:
        opened.acquire()
        yield opened


@pytest.fixture
def orders(ledger: Ledger) -> NewObject:
    """A relation "orders", created by epoch 1."""
    made = relation(ledger, "orders")
    ledger.commit(EpochCommit(Epoch(0), "first", created=(made,)))
    return made
