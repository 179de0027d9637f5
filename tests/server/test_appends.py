"""POST /v1/streams/{name}: all rows of a request or none, each key once."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.interfaces.server.limits import Limits
from served import served

if TYPE_CHECKING:
    from served import Answer, Client, Served

LINES = "application/x-ndjson"


@pytest.fixture
def stream(client: Client, request: pytest.FixtureRequest) -> str:
    name = f"s{abs(hash(request.node.name))}"
    client.sql(f"CREATE STREAM {name} (id INT NOT NULL, name STRING, price DECIMAL(9,2))")
    return name


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def append(
    client: Client,
    stream: str,
    body: bytes | str,
    kind: str = LINES,
    key: str | None = None,
    **query: Any,
) -> Answer:
    headers = {"Content-Type": kind} | ({} if key is None else {"Idempotency-Key": key})
    return client.ask("POST", f"/v1/streams/{stream}", body, headers, **query)


def ids(client: Client, stream: str) -> list[int]:
    return [row[0] for row in client.rows(f"SELECT id FROM {stream}")]


def test_lines_are_appended_and_their_token_is_waited_for(client: Client, stream: str):
    client.sql(f"CREATE MATERIALIZED VIEW of_{stream} AS SELECT id, price FROM {stream}")
    body = '{"id": 1, "name": "ann", "price": 1.50}\n\n{"ID": 2, "more": []}\n'
    found = append(client, stream, body, wait="readable")
    assert (found.status, found.json["rows"]) == (200, 2)
    seen = client.get(f"/v1/views/of_{stream}", max_staleness=0, min_epoch=found.json["token"])
    assert sorted(seen.json["rows"]) == [[1, "1.50"], [2, None]]


@pytest.mark.long
def test_arrow_is_appended(client: Client, stream: str):
    sink = io.BytesIO()
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["x", None]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = "application/vnd.apache.arrow.stream"
    assert append(client, stream, sink.getvalue(), arrow).json["rows"] == 2
    assert ids(client, stream) == [1, 2]
    assert append(client, stream, b"no arrow", arrow).status == 422
    assert append(client, stream, sink.getvalue()[:-40], arrow).status == 422
    assert ids(client, stream) == [1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        '{"id": "x"}',
        '{"id": 1.5}',
        '{"id": null}',
        '{"id": 99999999999}',
        '{"id": 1, "price": 1.005}',
        '{"other": 1}',
        "[1]",
        "{",
        "null",
        '{"id": 1} {"id": 2}',
    ],
)
def test_a_line_that_does_not_fit_is_named_and_nothing_is_appended(client: Client, bad: str):
    client.sql("CREATE STREAM IF NOT EXISTS strict (id INT NOT NULL, price DECIMAL(9,2))")
    found = append(client, "strict", f'{{"id": 7}}\n\n{bad}\n{{"id": 8}}\n')
    assert found.status == 422, found.body
    assert found.error["primary"] == 'line 3 does not fit stream "strict"'
    assert (found.error["span"]["line"], found.error["span"]["text"]) == (3, bad)
    assert ids(client, "strict") == []


def test_what_is_no_stream_no_type_or_too_long_is_refused(server: Served, stream: str):
    client = server.client
    assert append(client, "nothing", "").status == 404
    assert append(client, stream, '{"id": 1}', "text/plain").status == 415
    array = append(client, stream, '[{"id": 1}]')
    assert array.status == 422
    assert array.error["primary"].startswith("the body of the request holds a JSON array")
    assert append(client, stream, '{"id": 1}', wait="soon").status == 400
    with served(server.database, Limits(rows_bytes=100)) as small:
        assert append(small.client, stream, lines([{"id": n} for n in range(99)])).status == 413
    with served(server.database, Limits(held_bytes=100)) as small:
        assert append(small.client, stream, lines([{"id": n} for n in range(99)])).status == 503
        assert append(small.client, stream, lines([{"id": 1}])).status == 200
    assert ids(client, stream) == [1]


@pytest.mark.parametrize("line", ['{"id": "%s"}', '["%s"]', '{"id": %s'])
def test_of_a_long_line_an_error_shows_an_excerpt(client: Client, stream: str, line: str):
    found = append(client, stream, '{"id": 1}\n' + line % ("x" * 1_000_000))
    assert found.status == 422
    assert len(found.body) < 2000
    assert found.error["span"]["text"].startswith(line[:2])
    assert found.error["span"]["line"] == 2


def test_a_key_that_is_repeated_takes_effect_once(client: Client, stream: str):
    body = lines([{"id": 1}, {"id": 2}])
    first, again = (append(client, stream, body, key="k-1") for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    assert first.json["rows"] == again.json["rows"] == 2
    other = append(client, stream, lines([{"id": 3}]), key="k-1")
    assert (other.status, other.error["code"]) == (409, "conflict")
    assert append(client, stream, lines([{"id": 3}]), key="k-2").status == 200
    assert append(client, stream, body).status == 200
    assert ids(client, stream) == [1, 1, 2, 2, 3]


def test_one_key_at_the_same_time_takes_effect_once(client: Client, stream: str):
    answers = []

    def send(number: int) -> None:
        answers.append(append(client, stream, lines([{"id": number % 2}]), key="k").status)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 4 + [409] * 4
    assert len(ids(client, stream)) == 1


def test_a_producer_counts_its_requests(client: Client, stream: str):
    for sequence, number in ((1, 1), (1, 1), (2, 2), (1, 1), (5, 3)):
        body = lines([{"id": number}])
        assert append(client, stream, body, producer="p", sequence=sequence).status == 200
    assert ids(client, stream) == [1, 2, 3]
    assert append(client, stream, "", producer="p").status == 400
    assert append(client, stream, "", producer="p", sequence="x").status == 400
    assert append(client, stream, "", key="k", producer="p", sequence=9).status == 400


def test_a_column_with_a_default_is_given_in_all_lines_or_in_none(client: Client):
    client.sql("CREATE TABLE d (id INT PRIMARY KEY, mood STRING DEFAULT 'fine')")
    assert append(client, "d", lines([{"id": 1}, {"id": 2}])).status == 200
    assert append(client, "d", lines([{"id": 3, "Mood": "bad"}])).status == 200
    assert append(client, "d", lines([{"id": 4, "mood": "bad"}, {"id": 5}])).status == 422
    assert client.rows("SELECT * FROM d") == [[1, "fine"], [2, "fine"], [3, "bad"]]


def test_lines_may_call_a_renamed_column_as_before(client: Client, stream: str):
    client.sql(f"ALTER STREAM {stream} RENAME COLUMN name TO title")
    body = lines(
        [{"id": 1, "name": "a"}, {"id": 2, "title": "b"}, {"id": 3, "NAME": "n", "title": "c"}]
    )
    assert append(client, stream, body, wait="readable").status == 200
    assert client.rows(f"SELECT id, title FROM {stream} ORDER BY id") == [
        [1, "a"], [2, "b"], [3, "c"],
    ]  # fmt: skip
    client.sql(f"ALTER STREAM {stream} ADD COLUMN name STRING")
    append(client, stream, lines([{"id": 4, "name": "d"}]), wait="readable")
    assert client.rows(f"SELECT name, title FROM {stream} WHERE id = 4") == [["d", None]]
