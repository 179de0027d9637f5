"""A policy changes in the past while events arrive: readers and followers see it whole, or not yet.

Every capture is a multiple of 20.00, so what is reserved is a share of what was captured to the
cent. For each merchant it is 10% of what was captured before the policy changes, and 10% or 15% of
what was captured since: of one of the two for all merchants of the segment that an answer has.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.types import rows_of
from replaying import stored, view_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import headrace
    from headrace.algebra.zset import ZSet
    from headrace.types import ArrangementId

EXAMPLE = Path(__file__).parents[2] / "examples" / "payledger"
MERCHANTS = 200
BATCH = 400
READERS = 2
PROOF = """
CREATE MATERIALIZED VIEW captured AS
  SELECT merchant_id, currency, sum(amount) AS whole,
    coalesce(sum(amount) FILTER (WHERE event_time >= TIMESTAMP '{at}'), 0) AS since
  FROM payments WHERE kind = 'capture_settled' GROUP BY merchant_id, currency;
CREATE MATERIALIZED VIEW proof AS
  SELECT b.merchant_id, b.currency, b.segment, b.reserve_hold AS reserve, c.whole, c.since
  FROM merchant_balance b JOIN captured c
    ON b.merchant_id = c.merchant_id AND b.currency = c.currency
"""
OLD, NEW = Decimal("0.10"), Decimal("0.15")

pytestmark = [pytest.mark.spark, pytest.mark.long]


@dataclass
class Judge:
    """Decides whether an answer is of before the change or after it, and that it never goes back."""

    segment: str
    seen: list[str] = field(default_factory=list)

    def take(self, rows: Iterable[dict[str, Any]]) -> None:
        """Fail unless all rows of an answer rest on the same policy."""
        rates: dict[str, set[Decimal]] = {}
        for row in rows:
            before = row["whole"] - row["since"]
            if row["since"]:
                rate = (row["reserve"] - before * OLD) / row["since"]
                rates.setdefault(row["segment"], set()).add(rate)
            else:
                assert row["reserve"] == before * OLD, row
        mine = rates.pop(self.segment, set())
        assert all(each == {OLD} for each in rates.values()), rates
        assert mine in (set(), {OLD}, {NEW}), f"a mixture: {mine}"
        if mine:
            self.seen.append("new" if mine == {NEW} else "old")
        assert self.seen == sorted(self.seen, reverse=True), "back to the old policy"


def captures(first: int, events: Any) -> pa.Table:
    """Captures of all merchants, at any time of the ten days, with ids from ``first`` on."""
    random = np.random.default_rng(first)
    start = int(events.START.timestamp()) * 1_000_000
    at = start + random.integers(0, events.DAYS * 86_400_000_000, BATCH)
    amount = [Decimal(20) * int(n) for n in random.integers(1, 50, BATCH)]
    ids = np.arange(first, first + BATCH)
    return pa.table(
        {
            "event_id": ids,
            "kind": pa.repeat("capture_settled", BATCH),
            "merchant_id": random.integers(0, MERCHANTS, BATCH),
            "currency": pa.repeat("EUR", BATCH),
            "amount": pa.array(amount, pa.decimal128(18, 2)),
            "capture_id": ids,
            "event_time": pa.array(at).cast(pa.timestamp("us", "UTC")),
        }
    )


@dataclass
class Load:
    """Threads that go on until they are told to end; the first failure of one is raised then."""

    done: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, call: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                while not self.done.is_set():
                    call()
            except BaseException as error:
                self.failures.append(error)
                raise

        self.threads.append(threading.Thread(target=guarded))
        self.threads[-1].start()

    def end(self) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()
        for failure in self.failures:
            raise failure


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import events as made

    yield made
    for name in ("balances", "events"):
        sys.modules.pop(name, None)


@pytest.fixture
def payledger(opened: Callable[[], headrace.Database], events: Any) -> headrace.Database:
    import balances

    db = opened()
    db.register(balances.merchant_balance_of)
    db.sql((EXAMPLE / "statements.sql").read_text(encoding="utf-8"))
    db.insert("merchants", events.merchants(MERCHANTS))
    db.insert("reserve_policy", events.policies())
    db.insert("payments", captures(0, events))
    db.sql(PROOF.format(at=events.EFFECTIVE.strftime("%Y-%m-%d %H:%M:%S")))
    return db


def test_a_mixture_is_seen() -> None:
    def row(merchant: int, reserve: str) -> dict[str, Any]:
        whole, since = Decimal(300), Decimal(200)
        given = {"segment": "travel", "whole": whole, "since": since, "merchant_id": merchant}
        return {**given, "reserve": Decimal(reserve)}

    judge = Judge("travel")
    judge.take([row(1, "30.00"), row(2, "30.00")])
    judge.take([row(1, "40.00"), row(2, "40.00")])
    for wrong in ([row(1, "40.00"), row(2, "30.00")], [row(1, "30.00"), row(2, "30.00")]):
        with pytest.raises(AssertionError):
            judge.take(wrong)


def test_no_answer_and_no_epoch_mixes_two_policies_while_events_arrive(
    payledger: headrace.Database, events: Any
) -> None:
    db, load, written = payledger, Load(), iter(range(BATCH, 10**9, BATCH))
    judges = [Judge(events.CHANGED) for _ in range(READERS + 1)]
    sessions = [db.session() for _ in range(READERS)]
    held: dict[tuple[Any, ...], int] = {}

    def write() -> None:
        db.insert("payments", captures(next(written), events))
        time.sleep(0.05)

    def read(nth: int) -> None:
        judges[nth].take(sessions[nth].sql("SELECT * FROM proof").to_arrow().to_pylist())

    with db.subscribe("proof") as followed:

        def follow() -> None:
            changes = followed.poll(timeout=1.0)
            for change in changes or ():
                row = tuple(change.row.items())
                held[row] = held.get(row, 0) + change.weight
                if not held[row]:
                    del held[row]
            if changes:
                judges[-1].take(map(dict, held))

        load.start(write)
        load.start(follow)
        for nth in range(READERS):
            load.start(lambda nth=nth: read(nth))
        _until(lambda: load.failures or all(len(judge.seen) > 2 for judge in judges))
        db.sql(events.change())
        _until(lambda: load.failures or all(judge.seen[-1:] == ["new"] for judge in judges))
        load.end()
        assert all({"old", "new"} == set(judge.seen) for judge in judges)

    db.flush()
    before = kept(db)
    where = f"merchant_id < {MERCHANTS // 10}"
    assert db.sql(f"REPLAY VIEW merchant_balance WHERE {where}").message.startswith("0 rows")
    after = kept(db)
    assert before.keys() == after.keys()
    assert [id_ for id_, rows in before.items() if not rows.equals(after[id_])] == []
    text = (EXAMPLE / "statements.sql").read_text(encoding="utf-8")
    (query,) = re.findall(r"VIEW merchant_balance AS(.*?);", text, re.DOTALL)
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW merchant_balance AS{query}")
    rows = rows_of(view_named(db, "merchant_balance").id)
    assert before[rows].equals(kept(db)[rows])
    assert {verdict for *_, verdict in db.verify("proof").fetchall()} == {"equal to batch"}


def kept(db: headrace.Database) -> dict[ArrangementId, ZSet]:
    """Return what is stored of the balances, but for checkpoints: where these are is history."""
    found = stored(db, "merchant_balance")
    return {id_: rows for id_, rows in found.items() if not id_.endswith("checkpoints")}


def _until(met: Callable[[], Any]) -> None:
    until = time.monotonic() + 240
    while not met():
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(0.05)
