"""A ledger with a clock that a test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.storage.ledger import EpochCommit, Ledger, NewObject
from headrace.types import Epoch
from ledger.building import Clock, relation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> Clock:
    return Clock()


# A new database of PostgreSQL takes a second: `make suites` runs what `test_postgres.py` does not.
@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> str | Path:
    """Where the test's ledger is."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return tmp_path / "ledger.db"


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
