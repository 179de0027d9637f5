"""Connections to a ledger in PostgreSQL that are lost: what was written is known, and made once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace import postgres_session
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import EpochCommit, Ledger, Mode, store
from headrace.types import Epoch
from ledger.building import relation, segment, step
from servers.cut import Cut, cut
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.storage.ledger import NewObject
    from servers.postgres import Postgres


COMMIT = b"COMMIT\0"
"""The statement as it is sent, not the word in the name of an isolation level."""


@pytest.fixture
def between(postgres_server: Postgres) -> Iterator[Cut]:
    with cut(postgres_server.port) as made:
        yield made


@pytest.fixture
def through(between: Cut, postgres_url: str) -> str:
    """The URL of a ledger whose connections can be broken."""
    return f"postgresql://postgres@127.0.0.1:{between.port}/{postgres_url.rpartition('/')[2]}"


@pytest.fixture
def lossy(through: str) -> Iterator[Ledger]:
    with Ledger.open(through) as ledger:
        ledger.acquire()
        yield ledger


@pytest.fixture
def made(lossy: Ledger) -> NewObject:
    orders = relation(lossy, "orders")
    lossy.commit(EpochCommit(Epoch(0), "first", created=(orders,)))
    return orders


def stored(url: str) -> tuple[int, int, int]:
    """Return the last epoch, and the ends of the log by its record and by its segments."""
    with Ledger.open(url, Mode.READ) as reader:
        (owner,) = (each.relation for each in reader.relations.existing())
        end = reader.head.log_end(owner)
        size = reader.log.sizes().get(owner)
        return reader.head.epoch, end, 0 if size is None else size.changes


@pytest.mark.parametrize("arrives", [True, False])
def test_a_write_whose_commit_is_cut_off_is_made_once(
    lossy: Ledger, made: NewObject, between: Cut, postgres_url: str, *, arrives: bool
) -> None:
    def break_commit() -> None:
        if arrives:
            between.lose_answer_to = COMMIT
        else:
            between.lose = COMMIT

    for count in range(1, 4):
        break_commit()
        assert lossy.log.append(made.relation, segment(10)).end == 10 * count
        assert between.broken == 2 * count - 1
        break_commit()
        assert step(lossy) == count + 1
        assert between.broken == 2 * count
    assert stored(postgres_url) == (4, 30, 30)
    assert lossy.head.epoch == 4


@pytest.mark.long
def test_a_statement_of_a_transaction_that_is_cut_off_is_made_again(
    lossy: Ledger, made: NewObject, between: Cut, postgres_url: str
) -> None:
    for word in (b"FOR UPDATE", b"INSERT INTO segments", b"BEGIN"):
        between.lose = word
        lossy.log.append(made.relation, segment(10))
        assert between.lose is None
    assert stored(postgres_url) == (1, 30, 30)


def test_a_commit_in_doubt_is_found_out_when_the_server_is_back(
    lossy: Ledger, made: NewObject, between: Cut, postgres_url: str
) -> None:
    lossy._transactions.store.availability._patience = 0.3
    before = lossy.head
    between.after, between.lose_answer_to = True, COMMIT
    with pytest.raises(HeadraceError, match="Whether the change was written is not known") as lost:
        lossy.log.append(made.relation, segment(10))
    assert lost.value.code is Code.UNAVAILABLE
    assert lossy.trouble is not None
    assert lossy.head is before, "reads go on"
    with pytest.raises(HeadraceError, match="did not answer") as down:
        lossy.log.append(made.relation, segment(10))
    assert "Nothing was changed" in (down.value.hint or "")
    between.after = between.refuses = False
    assert lossy.log.append(made.relation, segment(10)).first == 10, "the first was committed"
    assert lossy.trouble is None
    assert lossy.head.log_end(made.relation) == 20
    assert stored(postgres_url) == (1, 20, 20)


@pytest.mark.long
def test_who_waits_for_a_server_goes_on_when_it_is_back(
    lossy: Ledger, made: NewObject, between: Cut, postgres_url: str
) -> None:
    between.break_all()
    appended: list[int] = []
    waiting = [
        threading.Thread(
            target=lambda: appended.append(lossy.log.append(made.relation, segment(1)).end)
        )
        for _ in range(3)
    ]
    for each in waiting:
        each.start()
    until(lambda: lossy.trouble is not None)
    between.refuses = False
    for each in waiting:
        each.join(60)
    assert sorted(appended) == [1, 2, 3]
    assert stored(postgres_url) == (1, 3, 3)


def test_an_idle_ledger_says_when_its_server_is_gone_and_back(lossy: Ledger, between: Cut) -> None:
    between.break_all()
    until(lambda: lossy.trouble is not None)
    between.refuses = False
    until(lambda: lossy.trouble is None)


@pytest.mark.long
def test_a_server_that_is_frozen_is_an_error_and_goes_on_afterwards(
    through: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_session, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(store, "PATIENCE_SECONDS", 0.5)
    with Ledger.open(f"{through}?connect_timeout=2") as ledger:
        ledger.acquire()
        step(ledger)
        postgres_server.freeze()
        try:
            with pytest.raises(HeadraceError, match="did not answer") as slow:
                step(ledger)
            assert slow.value.code is Code.UNAVAILABLE
        finally:
            postgres_server.thaw()
        until(lambda: ledger.trouble is None)
        assert step(ledger) == 2


def test_a_reader_is_woken_by_a_commit_and_polls_while_it_cannot_listen(
    lossy: Ledger, made: NewObject, between: Cut, postgres_url: str, through: str
) -> None:
    del made
    with Ledger.open(through, Mode.READ) as reader:
        assert reader.waking.wait(Epoch(1), 0.0) == 1
        for after in (1, 2, 3):
            seen: list[int] = []
            waiting = threading.Thread(
                target=lambda a=after, s=seen: s.append(reader.waking.wait(Epoch(a), 60))
            )
            waiting.start()
            if after == 3:
                between.break_all()
                until(lambda: lossy.trouble is not None)
                between.refuses = False
            step(lossy)
            waiting.join(60)
            assert seen == [after + 1]
    assert stored(postgres_url)[0] == 4


def test_a_reader_of_a_file_is_told_of_epochs(ledger: Ledger, address: str | Path) -> None:
    with Ledger.open(address, Mode.READ) as reader:
        seen: list[int] = []
        waiting = threading.Thread(target=lambda: seen.append(reader.waking.wait(Epoch(0), 60)))
        waiting.start()
        step(ledger)
        waiting.join(60)
        assert seen == [1]
        assert reader.waking.wait(Epoch(1), 0.1) == 1
