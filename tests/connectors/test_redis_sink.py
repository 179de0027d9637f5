"""Redis: the items are the view's rows, whatever is killed, late, lost or refused."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from connectors import sink_histories as histories
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors import SinkContext
from headrace.io.connectors.options import Given, read_options
from headrace.io.connectors.redis.access import connected
from headrace.io.connectors.redis.requests import SeenItems
from headrace.io.connectors.redis.sink import Options, RedisSession, check, opened
from headrace.io.connectors.sinks import require_readable
from headrace.types import Column, Epoch, Schema
from length import choose
from servers.certificates import authority
from servers.redis import PASSWORD, USER
from servers.tls import encrypted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.io.connectors.stores import StoreSink
    from servers.redis import Redis

POINTS = Schema(
    (
        Column("id", t.LongType()),
        Column("team", t.StringType()),
        Column("points", t.LongType()),
    )
)


def options(server: Redis, **given: str) -> Options:
    all_ = {"host": "127.0.0.1", "port": str(server.port), **given}
    listed = [Given(key, value, secret=key == "password") for key, value in all_.items()]
    return read_options(Options, listed, "a redis sink")


@pytest.fixture
def name() -> str:
    return uuid4().hex[:8]


def hashes(server: Redis, prefix: str) -> Counter[Any]:
    """Return the rows of hashes, read by another client than the sink's."""
    client = server.client()
    found = [client.hgetall(key) for key in client.keys(f"{prefix}:*")]
    return Counter(
        (
            int(item["id"]),
            item.get("name"),
            Decimal(item["amount"]) if "amount" in item else None,
            dt.datetime.fromisoformat(item["at"]),
            json.loads(item["ok"]) if "ok" in item else None,
        )
        for item in found
    )


def documents(server: Redis, prefix: str) -> Counter[Any]:
    """Return the rows of JSON objects."""
    client = server.client()
    found = [json.loads(client.get(key)) for key in client.keys(f"{prefix}:*")]
    return Counter(
        (
            item["id"],
            item["name"],
            None if item["amount"] is None else Decimal(item["amount"]),
            dt.datetime.fromisoformat(item["at"]),
            item["ok"],
        )
        for item in found
    )


@pytest.mark.parametrize(
    ("form", "read", "joins"), [("hash", hashes, True), ("json", documents, False)]
)
def test_the_items_are_the_rows_however_often_both_sides_are_killed(
    redis: Redis, name: str, tmp_path: Path, form: str, read: Any, joins: Any
) -> None:
    given = options(redis, pattern=f"{name}:{{id}}", form=form)

    def killed(number: int) -> None:
        if number % 4 == 0:
            redis.stop(crash=True)
            Timer(0.1, redis.start).start()

    histories.prove(
        lambda: opened(given, histories.context(tmp_path)),
        lambda: read(redis, name),
        seed=5 + joins,
        epochs=choose(24, 150),
        kills=choose(10, 80),
        settings=DeliverySettings(part_rows=6, joins=joins),
        killed=killed,
    )
    stored = opened(given, histories.context(tmp_path)).stored()
    assert stored is not None
    found = [tuple(row.values()) for part in stored for row in part.to_pylist()]
    assert Counter(found) == read(redis, name)


@pytest.mark.long
def test_a_server_that_stops_under_load_gets_everything_when_it_is_back(
    redis: Redis, name: str, tmp_path: Path
) -> None:
    random_, view = random.Random(4), histories.Histories()
    view.change({id_: histories.row(random_, id_) for id_ in range(500)})
    outlived = histories.begun(view)
    sink = opened(options(redis, pattern=f"{name}:{{id}}"), histories.context(tmp_path))
    delivery = outlived.delivery(sink, DeliverySettings(part_rows=50, joins=True))
    delivery.start()
    for number in range(300):
        ids = random_.sample(range(800), 50)
        view.change({i: random_.choice([None, histories.row(random_, i)]) for i in ids})
        outlived.wake()
        if number == 100:
            redis.stop(crash=True)
        if number == 200:
            assert delivery.error is not None
            assert delivery.error.code is Code.UNAVAILABLE
            redis.start()
        time.sleep(0.02)
    until = time.monotonic() + 90
    while delivery.at != view.last and time.monotonic() < until:
        time.sleep(0.1)
    delivery.close()
    assert hashes(redis, name) == view.at(view.last)


def test_each_change_of_a_row_is_one_event_of_its_key(
    redis: Redis, name: str, tmp_path: Path
) -> None:
    client = redis.client()
    client.config_set("notify-keyspace-events", "KA")
    events = client.pubsub()
    events.psubscribe(f"__keyspace@0__:{name}:*")
    given = options(redis, pattern=f"{name}:{{id}}")
    outlived = histories.prove(
        lambda: opened(given, histories.context(tmp_path)), lambda: hashes(redis, name), seed=9
    )
    seen: Counter[tuple[int, str]] = Counter()
    while message := events.get_message(timeout=0.5):
        if message["type"] == "pmessage" and message["data"] in ("hset", "del"):
            seen[int(message["channel"].rpartition(":")[2]), message["data"]] += 1
    events.close()
    client.config_set("notify-keyspace-events", "")
    expected: Counter[tuple[int, str]] = Counter()
    for changes in outlived.histories.epochs.values():
        set_ = {row[0] for row, weight in changes if weight > 0}
        gone = {row[0] for row, _ in changes} - set_
        expected.update([*((id_, "hset") for id_ in set_), *((id_, "del") for id_ in gone)])
    assert seen == expected


def points(changes: Sequence[tuple[int, str | None, int | None, int]]) -> pa.Table:
    columns = list(zip(*changes, strict=True))
    names = [*POINTS.names, WEIGHT]
    types = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
    return pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, types, strict=True)})


def board(
    redis: Redis, name: str, identity: str = "points/1", *, stops: bool = False
) -> StoreSink[RedisSession]:
    given = {"form": "sorted_set", "member": "p{id}", "score": "points"}
    whole = replace(histories.context(Path(), stops=stops), schema=POINTS, identity=identity)
    return opened(options(redis, pattern=f"{name}:{{team}}", **given), whole)


def test_sorted_sets_have_each_row_in_its_set_with_its_score(redis: Redis, name: str) -> None:
    random_, rows, sink = random.Random(3), {}, board(redis, name)
    for epoch in range(1, 40):
        changes = []
        for id_ in random_.sample(range(12), 4):
            old = rows.pop(id_, None)
            if old is not None:
                changes.append((id_, *old, -1))
            if random_.random() < 0.7:
                rows[id_] = (random_.choice("ab"), random_.randrange(-9, 1 << 50))
                changes.append((id_, *rows[id_], 1))
        changes = [c for c in changes if (*c[:3], -c[3]) not in changes]
        if changes:
            assert not sink.write(Epoch(epoch), [points(changes)])
        if random_.random() < 0.3:
            sink.close()
    client = redis.client()
    for team in "ab":
        there = client.zrange(f"{name}:{team}", 0, -1, withscores=True)
        wanted = sorted((p, f"p{id_}") for id_, (of, p) in rows.items() if of == team)
        assert [(int(score), member) for member, score in there] == wanted
    stored = sink.stored()
    assert stored is not None
    found = {tuple(row.values()) for part in stored for row in part.to_pylist()}
    assert found == {(id_, *row) for id_, row in rows.items()}
    sink.clear()
    assert client.keys(f"*{name}*") == []


def test_rows_that_redis_cannot_have_are_refused_each_with_the_reason(
    redis: Redis, name: str
) -> None:
    client, sink = redis.client(), board(redis, name)
    client.set(f"{name}:c", "of somebody else")
    rows = [(1, "a", 5, 1), (2, "a", None, 1), (3, "a", (1 << 53) + 1, 1), (4, None, 1, 1)]
    refused = sink.write(Epoch(3), [points([*rows, (5, "c", 1, 1)])])
    assert sorted((json.loads(each.row)["row"]["id"], each.why) for each in refused) == [
        (2, "its score is NULL"),
        (3, "its score is a whole number beyond 2^53, which a score cannot represent exactly"),
        (4, "a column of its key is NULL"),
        (5, "its key holds a value of another kind: string"),
    ]
    assert client.zrange(f"{name}:a", 0, -1) == ["p1"]
    again = board(redis, name)
    assert again.durable() == 3
    assert again.last_refused() == refused
    sink.close()
    stopping = board(redis, name, stops=True)
    stopping.write(Epoch(4), [points([(6, None, 1, 1)])])
    assert stopping.durable() == 3  # the epoch comes again


def test_what_an_earlier_session_sent_has_no_effect_when_it_arrives_late(
    redis: Redis, name: str
) -> None:
    late, sink = board(redis, name), board(redis, name)
    late.write(Epoch(1), [points([(1, "a", 5, 1)])])
    sink.write(Epoch(2), [points([(1, "a", 5, -1)])])  # deleted by the next session
    with pytest.raises(HeadraceError) as error:
        late.write(Epoch(1), [points([(1, "a", 5, 1)])])
    assert error.value.code is Code.UNAVAILABLE
    assert "another session writes" in str(error.value.detail)
    assert redis.client().keys(f"{name}:*") == []


def test_an_item_keeps_the_row_of_a_later_epoch(redis: Redis, name: str, tmp_path: Path) -> None:
    for form, value in (("hash", "hget"), ("json", "get")):
        prefix = f"{name}{form}"
        given = options(redis, pattern=f"{prefix}:{{id}}", form=form)
        sink = opened(given, histories.context(tmp_path))
        row = histories.row(random.Random(1), 1)
        sink.write(Epoch(8), [histories.table([(row, 1)])])
        sink.write(Epoch(7), [histories.table([((1, "older", *row[2:]), 1)])])
        arguments = (f"{prefix}:1", "name") if form == "hash" else (f"{prefix}:1",)
        assert "older" not in (getattr(redis.client(), value)(*arguments) or "")
        sink.write(Epoch(7), [histories.table([(row, -1)])])
        assert redis.client().exists(f"{prefix}:1")
        sink.write(Epoch(8), [histories.table([(row, -1)])])
        assert not redis.client().exists(f"{prefix}:1")
        sink.clear()


def test_keys_have_one_sink(redis: Redis, name: str) -> None:
    sink = board(redis, name)
    sink.write(Epoch(4), [points([(1, "a", 5, 1)])])
    with pytest.raises(HeadraceError) as error:
        board(redis, name, identity="points/2").durable()
    assert error.value.code is Code.CONFLICT
    assert "DEL headrace:sink:" in str(error.value.hint)
    assert sink.durable() == 4
    sink.clear()
    assert redis.client().keys(f"*{name}*") == []


def test_a_server_that_is_restored_in_a_session_is_not_gone_on_with(
    redis: Redis, name: str, tmp_path: Path
) -> None:
    given = options(redis, pattern=f"{name}:{{id}}")
    sink, client, mark = opened(given, histories.context(tmp_path)), redis.client(), given.mark
    some = [histories.row(random.Random(n), n) for n in range(3)]
    sink.write(Epoch(1), [histories.table([(some[0], 1)])])
    kept = client.hgetall(mark)
    sink.write(Epoch(2), [histories.table([(some[1], 1)])])
    client.delete(mark, f"{name}:1")
    client.hset(mark, mapping=kept)  # as of a replica that lagged behind
    with pytest.raises(HeadraceError, match="did not complete the request"):
        sink.write(Epoch(3), [histories.table([(some[2], 1)])])
    assert sink.durable() == 1  # the delivery says that changes are lost
    sink.clear()


def test_items_without_an_epoch_are_somebody_elses(redis: Redis, name: str, tmp_path: Path) -> None:
    sink = opened(options(redis, pattern=f"{name}:{{id}}"), histories.context(tmp_path))
    row, client = histories.row(random.Random(1), 1), redis.client()
    client.hset(f"{name}:1", mapping={"name": "theirs", "note": "kept"})
    client.hset(f"{name}:2", mapping={"id": "2", "name": "theirs"})
    assert list(sink.stored() or ()) == []
    sink.write(Epoch(1), [histories.table([(row, 1)])])
    (found,) = sink.stored() or ()
    assert [tuple(each.values()) for each in found.to_pylist()] == [row]
    assert client.hget(f"{name}:1", "note") in ("kept", b"kept")
    sink.clear()
    assert [client.exists(f"{name}:{number}") for number in (1, 2)] == [0, 1]
    client.delete(f"{name}:2")


def test_a_sink_moves_only_to_a_server_that_has_what_it_wrote(
    redis: Redis, name: str, tmp_path: Path
) -> None:
    given, whole = options(redis, pattern=f"{name}:{{id}}"), histories.context(tmp_path)
    moving = replace(whole, exists=True, moved=Epoch(4))
    with pytest.raises(HeadraceError, match="does not contain what this sink has written") as error:
        check(given, moving)
    assert error.value.code is Code.CONFLICT
    sink = opened(given, whole)
    sink.write(Epoch(4), [])
    check(given, moving)
    sink.clear()


def test_an_item_that_redis_shows_twice_is_one() -> None:
    random_, seen, known = random.Random(1), SeenItems(), set()
    for _ in range(200):
        names = [b"%d" % random_.randrange(3000) for _ in range(random_.randrange(40))]
        new = [names[at] for at in seen.new(names)]
        assert len(new) == len(set(new))
        assert set(new) == set(names) - known
        known |= set(names)
    assert len(seen._levels) < 12


def test_items_end_by_the_time_to_live(redis: Redis, name: str, tmp_path: Path) -> None:
    row = histories.row(random.Random(1), 1)
    for form in ("hash", "json"):
        given = options(redis, pattern=f"{name}{form}:{{id}}", form=form, ttl="1 h")
        sink = opened(given, histories.context(tmp_path))
        sink.write(Epoch(1), [histories.table([(row, 1)])])
        assert 3590 < redis.client().ttl(f"{name}{form}:1") <= 3600
        sink.close()


def test_credentials_are_those_of_the_connection(redis: Redis, name: str, tmp_path: Path) -> None:
    login = {"user": USER, "password": "pw"}
    given = options(redis, pattern=f"{name}:{{id}}", **login)
    connected(given, {"pw": PASSWORD}.__getitem__).close()
    sink = opened(given, histories.context(tmp_path, {"pw": "wrong"}))
    with pytest.raises(HeadraceError) as error:
        sink.durable()
    assert error.value.code is Code.INVALID
    assert "Correct the connection's user" in str(error.value.hint)
    assert "wrong" not in str(error.value).replace("WRONGPASS", "")


def test_an_encrypted_connection_knows_the_server(redis: Redis, tmp_path: Path) -> None:
    trusted, server = authority(tmp_path, "own")
    other, _ = authority(tmp_path, "other")
    with encrypted(redis.port, server) as port:

        def reach(**given: str) -> None:
            all_ = {"pattern": "x:{id}", "port": str(port), **given}
            connected(options(redis, **all_), str).close()

        reach(tls="true", **{"ssl certificate authority": str(trusted)})
        for given in ({"tls": "true", "ssl certificate authority": str(other)}, {"tls": "true"}):
            with pytest.raises(HeadraceError) as error:
                reach(**given)
            assert error.value.code is Code.UNAVAILABLE
            assert "certificate" in str(error.value.detail).lower()


def test_a_column_that_could_not_be_read_back_is_refused() -> None:
    good = (Column("id", t.LongType()), Column("b", t.ArrayType(t.BinaryType())))
    require_readable(Schema(good), "Redis")
    for type_ in (t.DayTimeIntervalType(), t.ArrayType(t.DayTimeIntervalType())):
        with pytest.raises(HeadraceError) as error:
            require_readable(Schema((*good, Column("long", type_))), "Redis")
        assert error.value.code is Code.UNSUPPORTED
        assert error.value.primary.startswith('column "long" of type')


@pytest.mark.parametrize(
    ("given", "key", "primary"),
    [
        ({"pattern": "x:{nope}"}, ("id",), 'the rows have no column "nope"'),
        ({"pattern": "x:{name}"}, ("id",), 'the pattern does not contain column "id" of the key'),
        ({"pattern": "x:{id}"}, (), "a sink into Redis is written by key"),
        ({"pattern": "x:{id"}, ("id",), "'x:{id' is not a pattern of columns"),
        ({"pattern": "x", "form": "sorted_set"}, ("id",), 'options "form"'),
        (
            {"pattern": "x", "form": "sorted_set", "member": "{id}", "score": "name"},
            ("id",),
            'column "name" of type STRING cannot be a score',
        ),
    ],
)
def test_what_cannot_be_written_is_refused_when_the_sink_is_created(
    redis: Redis,
    tmp_path: Path,
    given: dict[str, str],
    key: tuple[str, ...],
    primary: str,
) -> None:
    whole = histories.context(tmp_path)
    context = SinkContext(whole.directory, whole.schema, key, whole.secrets, whole.identity)
    with pytest.raises(HeadraceError) as error:
        check(options(redis, **given), context)
    assert error.value.code is Code.INVALID
    assert error.value.primary.startswith(primary)
    assert error.value.hint
