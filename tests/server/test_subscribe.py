"""GET /v1/subscribe: what a subscriber knows after each epoch is what the view was then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from headrace.interfaces.server import events as encoding
from headrace.interfaces.server.limits import Limits
from length import choose
from served import Events, Replica, served

if TYPE_CHECKING:
    import pyarrow as pa

    from served import Client, Served

WAIT = 60


@pytest.fixture(scope="module", autouse=True)
def _view(server: Served) -> None:
    server.client.sql(
        "CREATE TABLE g (k INT PRIMARY KEY, x INT);"
        "CREATE MATERIALIZED VIEW sums AS SELECT k % 5 AS m, sum(x) AS total FROM g GROUP BY k % 5;"
        "CREATE TABLE many (id INT PRIMARY KEY, t STRING)"
    )
    server.database.insert("many", [(n, "x" * 200) for n in range(50_000)])


def rows_at(client: Client, epoch: int, view: str = "sums") -> Counter[str]:
    answer = client.get(f"/v1/views/{view}", as_of_epoch=epoch)
    assert answer.status == 200, answer.body
    names = [column["name"] for column in answer.json["columns"]]
    rows = (dict(zip(names, row, strict=True)) for row in answer.json["rows"])
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def write(client: Client, rng: random.Random) -> None:
    """Change some rows, in an epoch of their own."""
    keys = sorted({rng.randrange(30) for _ in range(5)})
    values = ", ".join(f"({key}, {rng.randrange(100)})" for key in keys)
    if rng.random() < 0.3:
        answer = client.sql(f"DELETE FROM g WHERE k = {keys[0]}")
    else:
        answer = client.sql(f"INSERT OR REPLACE INTO g VALUES {values}")
    assert answer.status == 200, answer.body
    assert client.sql("FLUSH").status == 200


def followed_to(
    client: Client, replica: Replica, epoch: int, **query: object
) -> dict[int, Counter]:
    """Follow until an epoch is known; return what was known at the end of each."""
    known = {}
    with Events(client, replica.token, **query) as events:
        assert events.answer.status == 200, events.answer.read()
        for event in events:
            if replica.take(event):
                known[replica.epoch] = Counter(replica.rows)
            if replica.epoch >= epoch:
                break
    return known


@pytest.mark.parametrize(
    "query",
    [
        {"view": "sums"},
        pytest.param({"sql": "SELECT k, x + 1 AS y FROM g WHERE x > 50"}, marks=pytest.mark.long),
    ],
)
def test_a_replayed_changelog_is_the_view_at_each_epoch_over_reconnections(
    server: Served, query: dict[str, str]
):
    client, rng, replica = server.client, random.Random(7), Replica()
    known: dict[int, Counter] = {}
    for _ in range(choose(2, 20)):
        writer = threading.Thread(target=lambda: [write(client, rng) for _ in range(3)])
        write(client, rng)
        writer.start()
        goal = client.sql("FLUSH").json["epoch"]
        known |= followed_to(client, replica, goal, **query)
        writer.join()
    known |= followed_to(client, replica, client.sql("FLUSH").json["epoch"], **query)
    assert len(known) > 4
    if "view" in query:
        for epoch, rows in known.items():
            assert rows == rows_at(client, epoch), epoch
        return
    now = client.rows(query["sql"])
    assert replica.rows == Counter(json.dumps({"k": k, "y": y}, sort_keys=True) for k, y in now)


def test_progress_marks_come_when_nothing_changes(client: Client):
    with Events(client, view="sums") as events:
        kinds = []
        for event in events:
            kinds.append(event.kind)
            if kinds.count("progress") == 2:
                assert event.data["pending"] == 0
                assert event.id == event.data["token"]
                break
        assert kinds[0] == "snapshot"


def test_readers_of_one_view_share_one_thread_and_one_encoding(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    client, made = server.client, Counter()
    original = encoding.json_lines

    def counted(epoch: int, rows: pa.Table, key: object) -> object:
        made[epoch, *rows.column_names] += 1
        return original(epoch, rows, key)

    def threads() -> int:
        return sum(thread.name == "headrace-followed" for thread in threading.enumerate())

    before = threads()
    with ExitStack() as stack:
        every = [stack.enter_context(Events(client, view="sums")) for _ in range(20)]
        streams = [iter(events) for events in every]
        replicas = [Replica() for _ in every]
        for replica, stream in zip(replicas, streams, strict=True):
            while not (replica.take(next(stream)) and replica.epoch):
                pass
            while next(stream).kind != "progress":  # it is among the subscribers
                pass
        monkeypatch.setattr(encoding, "json_lines", counted)
        client.sql("INSERT OR REPLACE INTO g VALUES (1, 1000)")
        goal = client.sql("FLUSH").json["epoch"]
        for replica, stream in zip(replicas, streams, strict=True):
            while replica.epoch < goal:
                replica.take(next(stream))
            assert replica.rows == rows_at(client, replica.epoch)
        assert threads() <= before + 1
    assert set(made.values()) == {1}


def test_a_token_of_what_is_gone_is_a_conflict_and_of_nonsense_invalid(client: Client):
    client.sql("CREATE TABLE old (x INT); INSERT INTO old VALUES (1)")
    with Events(client, view="old") as events:
        token = next(iter(events)).id
    client.sql("DROP TABLE old; CREATE TABLE old (x INT); INSERT INTO old VALUES (2)")
    for after in (token, token.partition("~")[0], 10**12):
        answer = client.get("/v1/subscribe", view="old", after=after)
        assert (answer.status, answer.error["code"]) == (409, "conflict"), after
    assert client.get("/v1/subscribe", view="old", after="x").status == 400


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"view": "sums", "sql": "SELECT 1 AS x"}, 400),
        ({"view": "nothing"}, 404),
        ({"sql": "SELECT nothing FROM g"}, 400),
        ({"sql": "DROP TABLE g"}, 400),
        ({"sql": "SELECT * FROM g; SELECT * FROM g"}, 400),
        ({"sql": "SELECT * FROM g EMIT CHANGES LIMIT 3"}, 422),
    ],
)
def test_what_cannot_be_followed_is_refused(client: Client, query: dict[str, str], status: int):
    assert client.get("/v1/subscribe", **query).status == status


def test_a_view_that_is_dropped_ends_its_subscriptions_with_the_reason(client: Client):
    client.sql("CREATE MATERIALIZED VIEW brief AS SELECT x FROM g")
    with Events(client, view="brief") as events:
        stream = iter(events)
        assert next(stream).kind == "snapshot"
        assert next(stream).kind == "progress"
        client.sql("DROP MATERIALIZED VIEW brief")
        last = [event for event in stream if event.kind != "progress"]
    assert [event.kind for event in last] == ["error"]
    assert last[0].data["error"]["code"] == "conflict"


def test_one_that_reads_slowly_catches_up_and_slows_nobody(server: Served):
    """With room for less than an epoch in memory, it reads what is stored, and misses nothing."""
    with served(server.database, Limits(lag_bytes=300, lag_seconds=60)) as small:
        client, slow, rng = small.client, Replica(), random.Random(3)
        with Events(client, view="sums") as events:
            stream = iter(events)
            while not (slow.take(next(stream)) and slow.epoch):
                pass
            for _ in range(3):
                write(client, rng)
            client.sql("INSERT OR REPLACE INTO g SELECT id, id FROM many")
            goal = client.sql("FLUSH").json["epoch"]
            while slow.epoch < goal:
                slow.take(next(stream))
            assert slow.rows == rows_at(client, slow.epoch)


def test_one_that_takes_nothing_is_dropped(server: Served):
    with (
        served(server.database, Limits(lag_seconds=0.5)) as small,
        Events(small.client, view="many") as events,
    ):
        assert events.answer.status == 200
        deadline = time.monotonic() + WAIT
        while small.server.service.following.subscribers:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_too_many_subscribers_are_refused(server: Served):
    with (
        served(server.database, Limits(subscribers=1)) as small,
        Events(small.client, view="sums") as one,
    ):
        next(iter(one))
        assert small.client.get("/v1/subscribe", view="sums").status == 503


def test_a_server_that_stops_ends_its_subscriptions(server: Served):
    with served(server.database) as other:
        events = Events(other.client, view="sums")
        next(iter(events))
    assert all(event.kind == "progress" for event in events)
    events.close()
