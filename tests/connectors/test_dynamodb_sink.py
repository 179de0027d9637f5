"""DynamoDB: the items are the view's rows, whatever is killed, late, throttled or refused."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from botocore.exceptions import ReadTimeoutError
from pyspark.sql import types as t

from connectors import sink_histories as histories
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.dynamodb.access import attributes, refused, rows_of
from headrace.io.connectors.dynamodb.sink import DOUBT_SECONDS, DynamoStore, Options, check, opened
from headrace.io.connectors.options import Given, read_options
from headrace.io.connectors.stores import StoreSink
from headrace.types import Column, Epoch, Schema, to_arrow
from length import choose
from servers.dynamodb import REGION

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.io.connectors import SinkContext
    from servers.dynamodb import DynamoDB

NESTED = t.StructType(
    [
        t.StructField("d", t.ArrayType(t.DecimalType(5, 2))),
        t.StructField("m", t.MapType(t.IntegerType(), t.TimestampType())),
        t.StructField("o", t.MapType(t.TimeType(), t.TimeType())),
    ]
)
MOMENT = dt.datetime(2026, 1, 31, 10, 15, 0, 500001, tzinfo=dt.UTC)
VALUES: list[tuple[t.DataType, list[Any]]] = [
    (t.BooleanType(), [True, False]),
    (t.LongType(), [-(1 << 63), 7]),
    (t.FloatType(), [0.5, -1e-7]),
    (t.DoubleType(), [0.1, -1e120]),
    (t.DecimalType(38, 9), [Decimal("-1.5"), Decimal("0.000000001")]),
    (t.StringType(), ["", "ß\n"]),
    (t.BinaryType(), [b"", b"\x00\xff"]),
    (t.DateType(), [dt.date(1, 1, 1), dt.date(2026, 1, 31)]),
    (t.TimeType(), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    (t.TimestampType(), [MOMENT]),
    (t.TimestampNTZType(), [MOMENT.replace(tzinfo=None)]),
    (t.ArrayType(t.BinaryType()), [[], [b"\x00", None]]),
    (
        NESTED,
        [
            {
                "d": [Decimal("1.50"), None],
                "m": [(1, MOMENT)],
                "o": [(dt.time(1), dt.time(2, 0, 0, 5))],
            },
            {"d": None, "m": [], "o": None},
        ],
    ),
]


def options(dynamo: DynamoDB, table: str, **given: str) -> Options:
    all_ = {"table": table, "endpoint": dynamo.endpoint, "region": REGION, "access key": "test"}
    listed = [Given(key, value) for key, value in {**all_, "concurrency": "8", **given}.items()]
    listed.append(Given("secret key", "pw", secret=True))
    return read_options(Options, listed, "a dynamodb sink")


def context(directory: Path, schema: Schema | None = None) -> SinkContext:
    whole = histories.context(directory, {"pw": "test"})
    return whole if schema is None else replace(whole, schema=schema)


@pytest.fixture
def table(dynamo: DynamoDB) -> str:
    return dynamo.create(f"t-{uuid4().hex[:8]}", {"id": "N"})


def items(dynamo: DynamoDB, table: str) -> list[dict[str, Any]]:
    pages = dynamo.client.get_paginator("scan").paginate(TableName=table)
    return [item for page in pages for item in page["Items"]]


def rows(dynamo: DynamoDB, table: str) -> Counter[Any]:
    """Return the rows, as a reader has them who leaves tombstones out."""
    return Counter(
        (
            int(item["id"]["N"]),
            item["name"]["S"] if "name" in item else None,
            Decimal(item["amount"]["N"]) if "amount" in item else None,
            dt.datetime.fromisoformat(item["at"]["S"]),
            item["ok"]["BOOL"] if "ok" in item else None,
        )
        for item in items(dynamo, table)
        if "__deleted" not in item
    )


@pytest.mark.parametrize(("type_", "values"), VALUES)
def test_values_are_written_and_read_back(type_: t.DataType, values: list[Any]) -> None:
    given = pa.array([*values, None], to_arrow(type_))
    written = attributes(pa.chunked_array([given]), type_)
    assert written[-1] is None
    (read,) = rows_of([{"c": each} if each else {} for each in written], [Column("c", type_)])
    assert read.equals(given)
    assert refused(given, type_) == []


def test_numbers_that_dynamodb_has_not_are_refused() -> None:
    strange = pa.chunked_array([[1.0, float("nan"), None, float("-inf")]])
    assert refused(strange, t.DoubleType()) == [1, 3]


@pytest.mark.parametrize("joins", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_items_are_the_rows_however_often_the_delivery_is_killed(
    dynamo: DynamoDB, table: str, tmp_path: Path, joins: Any
) -> None:
    given = options(dynamo, table)
    check(given, context(tmp_path))
    histories.prove(
        lambda: opened(given, context(tmp_path)),
        lambda: rows(dynamo, table),
        seed=3 + joins,
        epochs=choose(10, 60),
        kills=choose(6, 40),
        settings=DeliverySettings(part_rows=20, joins=joins),
    )
    sink = opened(given, context(tmp_path))
    stored = sink.stored()
    assert stored is not None
    found = Counter(tuple(row.values()) for part in stored for row in part.to_pylist())
    assert found == rows(dynamo, table)
    sink.clear()
    assert not rows(dynamo, table)
    assert sink.durable() is None
    sink.close()


def test_a_request_that_arrives_late_brings_nothing_back(
    dynamo: DynamoDB, table: str, tmp_path: Path
) -> None:
    given, now = options(dynamo, table), [1e9]
    check(given, context(tmp_path))
    late, sink = (
        StoreSink(DynamoStore(given, context(tmp_path), clock=lambda: now[0])) for _ in range(2)
    )
    row, newer = (histories.row(random.Random(seed), 1) for seed in (1, 2))
    late.write(Epoch(1), [histories.table([(row, 1)])])
    sink.write(Epoch(2), [histories.table([(row, -1)])])
    assert not rows(dynamo, table)
    again = histories.table([(row, 1)]).drop_columns([WEIGHT])
    assert late._session is not None
    late._session.put(Epoch(1), again)
    assert not rows(dynamo, table)  # its tombstone is of a later epoch
    sink.write(Epoch(3), [histories.table([(newer, 1)])])
    late._session.put(Epoch(1), again)
    assert rows(dynamo, table) == Counter([newer])
    sink.write(Epoch(4), [histories.table([(newer, -1)])])
    assert [item["__epoch"]["N"] for item in items(dynamo, table)] == ["4"]
    with pytest.raises(HeadraceError) as error:
        late.write(Epoch(5), [])
    assert error.value.primary.startswith("another session writes")
    now[0] += DOUBT_SECONDS + 2
    sink.write(Epoch(5), [histories.table([(newer, 1)])])
    sink.write(Epoch(6), [histories.table([(newer, -1)])])
    assert items(dynamo, table) == []  # nothing is on its way any more: no tombstone is left
    sink.close()
    late.close()


def test_a_request_without_an_answer_is_followed_by_a_time_of_doubt(
    dynamo: DynamoDB, table: str, tmp_path: Path
) -> None:
    given, now = options(dynamo, table), [1e9]
    check(given, context(tmp_path))
    sink = StoreSink(DynamoStore(given, context(tmp_path), clock=lambda: now[0]))
    row = histories.row(random.Random(1), 1)
    sink.write(Epoch(1), [histories.table([(row, 1)])])
    now[0] += 2 * DOUBT_SECONDS
    assert sink._session is not None
    put = sink._session.client.put_item

    def unanswered(**request: Any) -> None:
        put(**request)
        raise ReadTimeoutError(endpoint_url=dynamo.endpoint)

    sink._session.client.put_item = unanswered
    with pytest.raises(HeadraceError) as error:
        sink.write(Epoch(2), [histories.table([(histories.row(random.Random(2), 2), 1)])])
    assert error.value.code is Code.UNAVAILABLE
    assert sink.durable() == 1
    sink.write(Epoch(2), [histories.table([(row, -1)])])
    (item,) = [each for each in items(dynamo, table) if "__deleted" in each]
    assert item["id"] == {"N": "1"}
    sink.close()


def test_what_is_throttled_is_sent_again(dynamo: DynamoDB, table: str, tmp_path: Path) -> None:
    given = options(dynamo, table)
    check(given, context(tmp_path))
    sink = opened(given, context(tmp_path))
    sink.durable()
    assert sink._session is not None
    client, times, lock = sink._session.client, Counter[str](), threading.Lock()
    put = client.put_item

    def throttled(**request: Any) -> Any:
        with lock:
            times[str(request["Item"]["id"])] += 1
            again = times[str(request["Item"]["id"])] > 1
        if again:
            return put(**request)
        said = {"Error": {"Code": "ThrottlingException", "Message": "slower"}}
        raise client.exceptions.ClientError(said, "PutItem")

    client.put_item = throttled
    changes = [(histories.row(random.Random(id_), id_), 1) for id_ in range(5)]
    assert sink.write(Epoch(1), [histories.table(changes)]) == []
    assert rows(dynamo, table) == Counter(row for row, _ in changes)
    sink.close()


def test_credentials_that_are_refused_have_to_be_mended(
    dynamo: DynamoDB, table: str, tmp_path: Path
) -> None:
    given = options(dynamo, table)
    check(given, context(tmp_path))
    sink = opened(given, context(tmp_path))
    sink.durable()
    assert sink._session is not None
    client = sink._session.client

    def refuse(**_request: Any) -> None:
        said = {"Error": {"Code": "UnrecognizedClientException", "Message": "not valid"}}
        raise client.exceptions.ClientError(said, "PutItem")

    client.put_item = refuse
    with pytest.raises(HeadraceError) as error:
        sink.write(Epoch(1), [histories.table([(histories.row(random.Random(1), 1), 1)])])
    assert error.value.code is Code.INVALID
    assert "Correct the credentials" in str(error.value.hint)
    assert sink.durable() is None
    sink.close()


def test_a_mark_that_is_restored_in_a_session_is_not_gone_on_with(
    dynamo: DynamoDB, table: str, tmp_path: Path
) -> None:
    given, whole = options(dynamo, table), context(tmp_path)
    check(given, whole)
    with pytest.raises(HeadraceError, match="does not contain what this sink has written"):
        check(given, replace(whole, exists=True, moved=Epoch(4)))
    sink = opened(given, whole)
    some = [histories.row(random.Random(n), n) for n in range(3)]
    sink.write(Epoch(1), [histories.table([(some[0], 1)])])
    check(given, replace(whole, exists=True, moved=Epoch(1)))
    key = {"TableName": "headrace_sinks", "Key": {"target": {"S": table}}}
    kept = dynamo.client.get_item(**key)["Item"]
    sink.write(Epoch(2), [histories.table([(some[1], 1)])])
    dynamo.client.put_item(TableName="headrace_sinks", Item=kept)
    with pytest.raises(HeadraceError, match="or its mark was restored") as caught:
        sink.write(Epoch(3), [histories.table([(some[2], 1)])])
    assert caught.value.code is Code.UNAVAILABLE
    assert sink.durable() == 1  # the delivery says that changes are lost
    sink.clear()
    sink.close()


def test_rows_that_dynamodb_cannot_have_are_refused_each_with_the_reason(
    dynamo: DynamoDB, tmp_path: Path
) -> None:
    schema = Schema((Column("id", t.StringType()), Column("x", t.DoubleType())))
    name = f"t-{uuid4().hex[:8]}"
    given, whole = options(dynamo, name, create_table="true"), context(tmp_path, schema)
    tries = replace(whole, tries=True)
    check(given, tries)  # it would be created
    with pytest.raises(HeadraceError):
        check(options(dynamo, name), tries)
    check(given, whole)
    check(given, tries)
    sink = opened(given, whole)
    ids, numbers = ["a", "", None, "d", "e" * 250_000], [1.5, 1.0, 1.0, float("nan"), 1.0]
    part = pa.table({"id": ids, "x": numbers, WEIGHT: [1] * 5})
    found = sink.write(Epoch(7), [part])
    why = {json.loads(each.row)["row"]["id"]: each.why for each in found}
    assert set(why) == {"", None, "d", ids[-1]}
    assert why[None] == "a column of its key is NULL"
    assert why["d"] == 'column "x" is NaN or infinite, which is not a number there'
    assert "empty" in why[""]
    assert [item["id"]["S"] for item in items(dynamo, name)] == ["a"]
    again = opened(given, whole)
    assert again.durable() == 7
    assert again.last_refused() == found
    dynamo.client.delete_table(TableName=name)
    with pytest.raises(HeadraceError) as error:  # no row is to blame
        again.write(Epoch(8), [part])
    assert error.value.code is Code.INVALID
    sink.close()
    again.close()


def test_what_does_not_fit_is_refused_when_the_sink_is_created(
    dynamo: DynamoDB, table: str, tmp_path: Path
) -> None:
    def raised(name: str, schema: Schema | None = None, **given: str) -> HeadraceError:
        with pytest.raises(HeadraceError) as error:
            check(options(dynamo, name, **given), context(tmp_path, schema))
        assert error.value.hint
        return error.value

    assert "cannot be written" in raised("nope").primary
    text = Schema((Column("id", t.StringType()),))
    assert "cannot be an attribute of type N" in raised(table, text).primary
    lacking = Schema((Column("name", t.StringType()),))
    assert 'no column "id"' in raised(table, lacking).primary
    by_name = dynamo.create(f"t-{uuid4().hex[:8]}", {"name": "S"})
    assert 'column "id" is not in the primary key' in raised(by_name).primary
    truth = Schema((Column("id", t.BooleanType()),))
    assert "cannot have the primary key" in raised("new", truth, create_table="true").primary
    given = options(dynamo, table)
    check(given, context(tmp_path))
    sink = opened(given, context(tmp_path))
    sink.write(Epoch(3), [histories.table([(histories.row(random.Random(1), 1), 1)])])
    with pytest.raises(HeadraceError) as error:
        check(given, replace(context(tmp_path), identity="another/1"))
    assert error.value.code is Code.CONFLICT
    sink.close()
