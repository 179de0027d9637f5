"""PayLedger: a policy that changes in the past repairs the balances that it touches, and no reader sees half of it."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from length import choose

EXAMPLE = Path(__file__).parents[2] / "examples" / "payledger"
MERCHANTS = 40
BALANCES = (
    "SELECT merchant_id, currency, available_balance, pending_balance, reserve_hold,"
    " last_event_time, policy_version FROM merchant_balance"
)

pytestmark = pytest.mark.spark


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import balances
    import events

    yield SimpleNamespace(balances=balances, events=events)
    for name in ("balances", "events"):
        del sys.modules[name]


def expected(example, arrived, policies):
    """The balances that the plain function makes of the events that arrived, in order."""
    segment = dict(zip(*example.events.merchants(MERCHANTS).to_pydict().values(), strict=True))
    by_key = {}
    for event in {event["event_id"]: event for event in reversed(arrived)}.values():
        versions = policies[segment[event["merchant_id"]]]
        _, rate, version = max(v for v in versions if v[0] <= event["event_time"])
        key = event["merchant_id"], event["currency"]
        by_key.setdefault(key, []).append(SimpleNamespace(**event, rate=rate, version=version))
    fold, found = example.balances.merchant_balance_of, Counter()
    for key, given in by_key.items():
        state = {**fold.folded.start, "pending": {}}
        for event in sorted(given, key=lambda event: (event.event_time, event.event_id)):
            state = fold(state, event)
        found[(*key, *example.balances.finished(state).values())] += 1
    return found


def rows_of(result):
    return Counter(tuple(row.values()) for row in result.to_arrow().to_pylist())


@pytest.mark.long
def test_a_policy_that_changes_in_the_past_repairs_what_it_touches(db, example):
    events = example.events
    db.register(example.balances.merchant_balance_of)
    db.sql((EXAMPLE / "statements.sql").read_text(encoding="utf-8"))
    db.insert("merchants", events.merchants(MERCHANTS))
    db.insert("reserve_policy", events.policies())
    payments = events.payments(700, MERCHANTS)
    for first in range(0, payments.num_rows, 250):
        db.insert("payments", payments.slice(first, 250))
        db.flush()
    arrived = payments.to_pylist()
    assert len(arrived) > len({event["event_id"] for event in arrived})
    times = [event["event_time"] for event in arrived]
    assert times != sorted(times)
    policies = {name: [(events.START, events.RATE, 1)] for name in events.SEGMENTS}
    before = expected(example, arrived, policies)
    assert rows_of(db.sql(BALANCES)) == before

    policies[events.CHANGED].append((events.EFFECTIVE, events.NEW_RATE, 2))
    after = expected(example, arrived, policies)
    changed = sum((before - after).values())
    assert 0 < changed < sum(before.values())
    seen, done = [], threading.Event()

    def read():
        session = db.session()
        while not done.is_set():
            seen.append(rows_of(session.sql(BALANCES)))

    reader = threading.Thread(target=read)
    with db.subscribe(BALANCES) as followed:
        reader.start()
        db.sql(events.change())
        db.flush()
        assert rows_of(db.sql(BALANCES)) == after
        done.set()
        reader.join()
        held = Counter()
        while held != after:
            for change in followed.poll(timeout=60) or ():
                held[tuple(change.row.values())] += change.weight
            held = Counter({row: n for row, n in held.items() if n})
            assert held in (before, after)
    assert all(each in (before, after) for each in seen)
    newer = "SELECT merchant_id, currency FROM merchant_balance WHERE policy_version = 2"
    assert {row[:2] for row in before - after} == set(db.sql(newer).fetchall())

    text = (EXAMPLE / "statements.sql").read_text(encoding="utf-8")
    (query,) = re.findall(r"VIEW merchant_balance AS(.*?);", text, re.DOTALL)
    db.sql(f"CREATE MATERIALIZED VIEW again AS{query}")
    assert rows_of(db.sql(BALANCES.replace("merchant_balance", "again"))) == after
    for name in choose([], ["merchant_balance", "again", "segment_balance"]):
        assert [verdict for *_, verdict in db.verify(name).fetchall()] == ["equal to batch"]
