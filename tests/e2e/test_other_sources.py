"""Streams whose rows come from a generator, a directory or Kinesis: SQL from end to end."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from headrace.errors import Code, HeadraceError
from waiting import landed, until

if TYPE_CHECKING:
    from pathlib import Path

    import headrace


pytestmark = pytest.mark.timeout(400)


def source(db: headrace.Database, name: str) -> tuple[object, ...]:
    """A row of SHOW SOURCES: its state, connector, rejects and error."""
    (found,) = [row for row in db.sql("SHOW SOURCES").fetchall() if row[0] == name]
    return found[3], found[4], found[6], found[7]


CLICKS = """
CREATE STREAM clicks (id BIGINT, user INT, page STRING, at TIMESTAMP, name AS concat('u-', user),
  WATERMARK FOR at AS at - INTERVAL '30' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '20000', 'number-of-rows' = '30000',
  'fields.id.kind' = 'sequence', 'fields.user.min' = '1', 'fields.user.max' = '5',
  'fields.page.values' = 'home,cart,pay', 'fields.page.weights' = '70,20,10',
  'lateness.share' = '0.02', 'lateness.max' = '20 s', 'seed' = '1')
"""


@pytest.mark.long
def test_made_up_rows_keep_a_view_and_continue_after_a_restart(opened) -> None:
    db = opened()
    message = db.sql(CLICKS)
    assert str(message).endswith("whose rows come from datagen")
    db.sql("CREATE MATERIALIZED VIEW pages AS SELECT page, count(*) AS n FROM clicks GROUP BY page")
    landed(db, "clicks", 1)
    db.close()
    again = opened()
    landed(again, "clicks", 30_000)
    until(lambda: source(again, "clicks")[0] == "finished")
    counts = dict(again.sql("SELECT * FROM pages").fetchall())
    assert counts.keys() == {"home", "cart", "pay"}
    assert counts["home"] == pytest.approx(21_000, rel=0.03)
    ids = "SELECT count(*), count(DISTINCT id), min(id), max(id), max(name) FROM clicks"
    assert again.sql(ids).fetchall() == [(30_000, 30_000, 0, 29_999, "u-5")]
    with pytest.raises(HeadraceError, match="does not name a generated column") as caught:
        again.sql(
            "CREATE STREAM s (v INT) WITH (connector = 'datagen', 'fields.w.kind' = 'random')"
        )
    assert caught.value.code is Code.INVALID
    with pytest.raises(HeadraceError, match='datagen has no metadata "offset"'):
        again.sql("CREATE STREAM s (o BIGINT METADATA FROM 'offset') WITH (connector = 'datagen')")


@pytest.mark.long
def test_files_of_a_directory_keep_a_view(opened, tmp_path: Path) -> None:
    place = tmp_path / "in"
    db = opened()
    with pytest.raises(HeadraceError, match="cannot be read") as missing:
        db.sql(f"CREATE STREAM s (v INT) WITH (connector = 'filesystem', path = '{place}')")
    assert missing.value.code is Code.UNAVAILABLE
    assert db.relations() == []
    day = place / "dt=2026-11-26"
    day.mkdir(parents=True)
    (day / "a.csv").write_text("id,price\n1,2.50\n2,x\n3,4.00\n")
    db.sql(
        "CREATE STREAM sales (id INT, price DECIMAL(8,2), dt DATE METADATA FROM 'partition.dt',"
        " file STRING METADATA FROM 'file.name', twice AS price * 2) WITH (connector ="
        f" 'filesystem', path = '{place}/**/*', 'scan.settle' = '0 s',"
        " 'source.monitor-interval' = '20 ms')"
    )
    db.sql(
        "CREATE MATERIALIZED VIEW days AS SELECT dt, count(*) AS n, sum(twice) AS s FROM sales"
        " GROUP BY dt"
    )
    landed(db, "sales", 2)
    (day / "b.jsonl.tmp").write_text('{"id": 4, "price": 1}\n{"id": 5, "price": 1.5}\n')
    (day / "b.jsonl.tmp").rename(day / "b.jsonl")
    landed(db, "sales", 4)
    db.close()
    again = opened()
    (day / "c.csv").write_text("id,price\n6,1.00\n")
    landed(again, "sales", 5)
    found = again.sql("SELECT CAST(dt AS STRING), n, s FROM days").fetchall()
    assert found == [("2026-11-26", 5, Decimal("20.00"))]
    names = again.sql("SELECT DISTINCT file FROM sales").fetchall()
    assert sorted(names) == [("a.csv",), ("b.jsonl",), ("c.csv",)]
    assert source(again, "sales") == ("running", "filesystem", 1, None)
    (reject,) = again.sql("SHOW REJECTS FOR sales").fetchall()
    assert reject[1:3] == (str(day / "a.csv"), 3)
    with pytest.raises(HeadraceError, match="gets its rows from elsewhere"):
        again.sql("INSERT INTO sales (id) VALUES (1)")


@pytest.mark.long
def test_records_of_kinesis_keep_a_view(opened, kinesis_server, tmp_path: Path) -> None:
    stream = kinesis_server.create(f"orders-{uuid4().hex[:8]}", 1)
    db = opened()
    create = (
        "CREATE STREAM orders (user STRING KEY, amount DECIMAL(8,2),"
        " shard STRING METADATA FROM 'shard-id') WITH (connector = 'kinesis',"
        " stream = '{stream}', format = 'json', 'aws.region' = 'eu-central-1',"
        f" 'aws.endpoint' = '{kinesis_server.endpoint}',"
        " 'aws.credentials.basic.accesskeyid' = 'test',"
        " 'aws.credentials.basic.secretkey' = SECRET aws)"
    )
    secret = tmp_path / "secret"
    secret.write_text("test")
    db.sql(f"CREATE SECRET aws FROM FILE '{secret}'")
    with pytest.raises(HeadraceError, match='stream "absent" does not exist'):
        db.sql(create.format(stream="absent"))
    assert db.relations() == []
    db.sql(create.format(stream=stream))
    db.sql(
        "CREATE MATERIALIZED VIEW totals AS SELECT user, count(*) AS n, sum(amount) AS s"
        " FROM orders GROUP BY user"
    )
    kinesis_server.put(stream, [("ann", b'{"amount": 1.5}'), ("bob", b'{"amount": 2}')])
    landed(db, "orders", 2)
    kinesis_server.split(stream)
    kinesis_server.put(stream, [("ann", b'{"amount": 3}'), ("ann", b"?")])
    db.close()
    again = opened()
    landed(again, "orders", 3)
    found = sorted(again.sql("SELECT * FROM totals").fetchall())
    assert found == [("ann", 2, Decimal("4.50")), ("bob", 1, Decimal("2.00"))]
    assert again.sql("SELECT count(DISTINCT shard) FROM orders").fetchall() == [(2,)]
    until(lambda: source(again, "orders") == ("running", "kinesis", 1, None))
    embedded = again.sql("CREATE STREAM s (v INT) WITH (connector = 'kinesis', stream = 's')")
    assert "in the embedded log" in str(embedded)


def test_event_time_of_files_is_followed_over_all_of_them(opened, tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    for number, (name, times) in enumerate({"a": [100, 200], "b": [150, 90]}.items()):
        lines = "".join(f'{{"at": "1970-01-01 00:00:{t / 10:04.1f}"}}\n' for t in times)
        (place / f"{name}.jsonl").write_text(lines)
        os.utime(place / f"{name}.jsonl", (number, number))
    db = opened()
    db.sql(
        "CREATE STREAM s (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '2' SECOND)"
        f" ALLOWED LATENESS INTERVAL '5' SECOND ON LATE REJECT WITH (connector = 'filesystem',"
        f" path = '{place}', 'source.monitor-interval' = '20 ms')"
    )
    landed(db, "s", 3)
    (reject,) = db.sql("SHOW REJECTS FOR s").fetchall()
    assert reject[1] == str(place / "b.jsonl")
    assert "late" in reject[4]


@pytest.mark.parametrize(
    ("statement", "code", "reason"),
    [
        (
            "CREATE STREAM s (v INT) WITH (brokers = 'b:9092', format = 'json')",
            Code.INVALID,
            'option "brokers" is an address, but no connector is named',
        ),
        (
            "CREATE STREAM s (v INT) WITH (path = '/data')",
            Code.INVALID,
            'option "path" is an address, but no connector is named',
        ),
        (
            "CREATE STREAM s WITH (kafka_topic = 't', brokers = 'b:9092') AS SELECT v FROM t",
            Code.UNSUPPORTED,
            'option "brokers" of a query',
        ),
        (
            "CREATE TABLE s WITH (topic = 't', connection = k) AS SELECT count(*) AS n FROM t",
            Code.UNSUPPORTED,
            'option "connection" of a query',
        ),
        (
            "CREATE STREAM s (v INT) WITH (connector = 'kafak', topic = 's')",
            Code.UNSUPPORTED,
            'connector "kafak" is not supported in a source',
        ),
        ("CREATE STREAM s (v INT) ON ERROR STOP", Code.INVALID, "no source that could stop"),
        ("CREATE TABLE s (v INT PRIMARY KEY) ON ERROR STOP", Code.INVALID, "no source"),
    ],
)
def test_what_would_have_no_effect_is_refused(opened, statement, code, reason) -> None:
    db = opened()
    db.sql("CREATE STREAM t (v INT)")
    with pytest.raises(HeadraceError, match=reason) as caught:
        db.sql(statement)
    assert caught.value.code is code
    assert caught.value.span is not None
    assert [row[0] for row in db.sql("SHOW SOURCES").fetchall()] == ["t"]


def test_without_an_address_a_relation_is_stored_here_and_says_so(opened) -> None:
    db = opened()
    said = db.sql("CREATE STREAM t (v INT) WITH (topic = 't') ON ERROR STOP")
    assert str(said).endswith("in the embedded log: no broker is configured")
    said = db.sql("CREATE STREAM s WITH (kafka_topic = 's') AS SELECT v FROM t")
    assert str(said).endswith("stored in the embedded log: no broker is configured")
