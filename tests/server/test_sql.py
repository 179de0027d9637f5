"""POST /v1/sql over real sockets: formats, parameters, errors, sessions, cancelling, timeouts."""

from __future__ import annotations

import base64
import csv
import io
import json
import socket
import threading
import time
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.limits import Limits
from served import Client, Served, served

LONG = "SELECT sum(slowly(x)) AS s FROM n"
"""Of 2,000 rows of n, it takes minutes, and no processor."""


@pytest.fixture(scope="module", autouse=True)
def _rows(server: Served) -> None:
    server.client.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name STRING, price DECIMAL(9,2));"
        "INSERT INTO t VALUES (1, 'ann', 1.50), (2, NULL, 2.00), (3, 'it''s', NULL);"
        "CREATE TABLE n (x BIGINT)"
    )
    server.database.insert("n", [(x,) for x in range(2000)])

    def slowly(value: int) -> int:
        time.sleep(0.1)
        return value

    server.database.flush()
    server.database.register("slowly", slowly, returns="BIGINT", deterministic=True)


def test_rows_are_json_with_their_types_epoch_and_freshness(client: Client):
    found = client.sql("SELECT id, name, price FROM t WHERE id = 1")
    assert found.status == 200
    answer = found.json
    assert answer["kind"] == "rows"
    assert answer["columns"] == [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "decimal(9,2)"},
    ]
    assert answer["rows"] == [[1, "ann", "1.50"]]
    assert answer["freshness"]["epoch"] == answer["epoch"] == int(found.headers["headrace-epoch"])
    assert answer["freshness"]["pending"] == int(found.headers["headrace-pending"]) == 0
    assert answer["freshness"]["committed_at"] == float(found.headers["headrace-committed-at"])
    assert answer["token"] == found.headers["headrace-token"]


def test_a_statement_without_rows_says_what_it_did_and_its_token_names_what_it_wrote(
    client: Client,
):
    found = client.sql("CREATE TABLE w (x INT); INSERT INTO w VALUES (1), (2)", accept="text/csv")
    assert found.headers["content-type"] == "application/json"
    assert (found.json["kind"], found.json["rows"]) == ("done", [])
    assert found.json["message"] == "2 rows inserted"
    assert found.json["token"].endswith(":2")


def test_lines_csv_and_arrow_have_the_same_rows(client: Client):
    sql = "SELECT * FROM t"
    lines = client.sql(sql, accept="application/x-ndjson")
    assert sorted(json.loads(line)["id"] for line in lines.body.splitlines()) == [1, 2, 3]
    assert lines.headers["headrace-epoch"]
    written = client.sql(sql, accept="text/csv").body.decode()
    header, *records = csv.reader(io.StringIO(written))
    assert header == ["id", "name", "price"]
    assert sorted(records) == [["1", "ann", "1.50"], ["2", "", "2.00"], ["3", "it's", ""]]
    stream = client.sql(sql, accept="text/html, application/vnd.apache.arrow.stream;q=0.9")
    table = pa.ipc.open_stream(stream.body).read_all()
    assert sorted(table["price"].to_pylist(), key=str) == [Decimal("1.50"), Decimal("2.00"), None]


def test_a_format_that_is_not_served_is_refused(client: Client):
    assert client.sql("SELECT 1 AS x", accept="image/png").status == 406


def test_the_columns_of_a_listing_have_types_without_values(client: Client):
    client.sql(
        "CREATE TABLE fed_by_hand (id INT PRIMARY KEY);"
        "CREATE MATERIALIZED VIEW of_hand AS SELECT id FROM fed_by_hand"
    )
    for listing, expected in {
        "FRESHNESS": {"watermark": "string", "dirty_since": "string", "changes_behind": "bigint"},
        "SOURCES": {"behind": "bigint", "late": "bigint", "watermark": "string", "error": "string"},
        "REJECTS": {"line": "bigint", "reason": "string"},
        "EPOCHS": {"epoch": "bigint", "seconds": "double"},
    }.items():
        columns = client.sql(f"SHOW {listing}").json["columns"]
        types = {column["name"]: column["type"] for column in columns}
        assert expected.items() <= types.items()


def test_arrow_of_no_rows_has_its_columns(client: Client):
    found = client.sql(
        "SELECT id FROM t WHERE id = 99", accept="application/vnd.apache.arrow.stream"
    )
    assert pa.ipc.open_stream(found.body).read_all().schema.names == ["id"]


@pytest.mark.parametrize(
    "value", ["ann' OR '1'='1", "'; DROP TABLE t; --", "\\' OR 1=1 --", "/* */ it's ?", ":name"]
)
def test_parameters_are_bound_never_spliced(client: Client, value: str):
    assert client.rows("SELECT ? AS x", [value]) == [[value]]
    assert client.rows("SELECT id FROM t WHERE name = :name", {"name": value}) == []
    assert len(client.rows("SELECT id FROM t")) == 3


def test_an_error_can_be_made_again_from_its_body(client: Client):
    sql = "SELECT id,\n  nme FROM t"
    found = client.sql(sql)
    assert found.status == 400
    error = HeadraceError.of_json(found.error)
    assert (error.code, error.primary) == (Code.INVALID, 'column "nme" does not exist')
    assert error.span is not None
    assert error.span.source == "nme"
    assert error.span.position == (2, 3)
    with pytest.raises(HeadraceError) as raised:
        raise error
    assert 'Did you mean "name"?' in str(raised.value)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"sql": 1}', 400),
        (b'{"sql": "SELECT 1", "sqll": 1}', 400),
        (b'{"sql": "SELECT 1", "timeout": 0}', 400),
        (b'{"sql": "SELECT 1", "timeout": true}', 400),
        (b'{"sql": "SELECT 1", "timeout": 1e9}', 400),
        (b'{"sql": "SELECT 1", "session": "x"}', 410),
        (b'{"sql": ""}', 400),
        (b'{"sql": "SELECT ?", "parameters": [{}]}', 400),
        (b'{"sql": "SELECT ?", "parameters": [1e400]}', 400),
        (b'{"sql": "SELECT ?", "parameters": [[-Infinity]]}', 400),
        (b'{"sql": "SELECT 1", "max_staleness": NaN}', 400),
        (b'{"sql": "SELECT 1", "max_staleness": -0.5}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"sql": "' + b" " * (1 << 20) + b'"}', 413),
    ],
)
def test_a_request_that_is_none_is_refused(client: Client, body: bytes, status: int):
    found = client.ask("POST", "/v1/sql", body, {"Content-Type": "application/json"})
    assert found.status == status, found.body
    assert set(found.error) == {"code", "primary", "detail", "hint", "span"}


def test_what_a_form_can_send_is_not_taken(client: Client):
    found = client.ask("POST", "/v1/sql", b'{"sql": "SELECT 1"}', {"Content-Type": "text/plain"})
    assert found.status == 415


def test_paths_and_methods_that_do_not_exist_are_errors_as_all_others(client: Client):
    assert client.get("/nothing").status == 404
    found = client.get("/v1/sql")
    assert (found.status, found.headers["allow"]) == (405, "POST")
    assert found.error["code"] == "invalid"


@pytest.mark.parametrize("sql", ["SUBSCRIBE t", "SELECT * FROM t EMIT CHANGES", "PRINT 't'"])
def test_following_is_refused_before_anything_runs(client: Client, sql: str):
    found = client.sql(f"CREATE TABLE never (x INT); {sql}")
    assert (found.status, found.error["code"]) == (422, "unsupported")
    assert "/v1/subscribe" in found.error["hint"]
    assert client.sql("SELECT * FROM never").status == 400


def test_a_session_keeps_its_settings_and_its_end_is_an_end(client: Client):
    id_ = client.post("/v1/sessions", None).json["session"]
    client.sql("SET execution.runtime-mode = 'streaming'", session=id_)
    assert client.sql("SELECT * FROM t", session=id_).status == 422
    assert client.sql("SELECT * FROM t").status == 200
    assert client.ask("POST", f"/v1/sessions/{id_}/cancel").json == {"cancelled": False}
    assert client.ask("DELETE", f"/v1/sessions/{id_}").status == 200
    assert client.sql("SELECT 1 AS x", session=id_).status == 410
    assert client.ask("DELETE", f"/v1/sessions/{id_}").status == 410


def test_a_timeout_ends_a_statement(client: Client):
    began = time.monotonic()
    found = client.sql(LONG, timeout=1.5)
    assert (found.status, found.error["code"]) == (408, "cancelled")
    assert "1.5 s" in found.error["primary"]
    assert time.monotonic() - began < 15


def test_a_statement_of_a_session_is_cancelled_by_another_request(client: Client):
    id_ = client.post("/v1/sessions", None).json["session"]
    found = []
    asking = threading.Thread(target=lambda: found.append(client.sql(LONG, session=id_)))
    asking.start()
    while not found and not client.ask("POST", f"/v1/sessions/{id_}/cancel").json["cancelled"]:
        time.sleep(0.05)
    while asking.is_alive():
        client.ask("POST", f"/v1/sessions/{id_}/cancel")
        asking.join(0.2)
    assert (found[0].status, found[0].error["code"]) == (499, "cancelled")


def test_a_client_that_leaves_ends_its_statement(server: Served):
    """With one thread for statements, the next one runs only once the first has ended."""
    with served(server.database, Limits(statements=1, queued=1)) as small:
        connection = small.client.connected()
        body = json.dumps({"sql": LONG})
        connection.request("POST", "/v1/sql", body, {"Content-Type": "application/json"})
        while small.server.service.runner.running == 0:
            time.sleep(0.01)
        connection.close()
        began = time.monotonic()
        assert small.client.rows("SELECT id FROM t WHERE id = 1", timeout=60) == [[1]]
        assert time.monotonic() - began < 30


@pytest.mark.long
def test_more_statements_than_may_run_and_wait_are_refused_at_once(server: Served):
    with served(server.database, Limits(statements=1, queued=0)) as small:
        long = []
        thread = threading.Thread(target=lambda: long.append(small.client.sql(LONG, timeout=2)))
        thread.start()
        while small.server.service.runner.running == 0:
            time.sleep(0.01)
        found = small.client.sql("SELECT 1 AS x")
        assert (found.status, found.headers["retry-after"]) == (503, "1")
        assert found.error["code"] == "unavailable"
        thread.join()
        assert long[0].status == 408


def test_a_document_of_too_many_rows_is_refused_and_a_stream_is_not(server: Served):
    with served(server.database, Limits(json_rows=2)) as small:
        found = small.client.sql("SELECT * FROM t")
        assert (found.status, found.error["code"]) == (422, "unsupported")
        assert small.client.sql("SELECT * FROM t", accept="text/csv").status == 200


def test_a_defect_shows_nothing_of_the_machine(
    client: Client, server: Served, monkeypatch: pytest.MonkeyPatch
):
    def broken() -> None:
        raise RuntimeError("/etc/secret is at fault")

    monkeypatch.setattr(server.server.service.sessions, "_opened", broken)
    found = client.sql("SELECT 1 AS x")
    assert (found.status, found.error["code"]) == (500, "internal")
    assert b"secret" not in found.body


def test_health_and_readiness(client: Client):
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json["status"] == "ready"


def events(body: bytes) -> list[tuple[str, str]]:
    """The events of an answer: their kinds and data; comments are left out."""
    blocks = [block for block in body.decode().split("\n\n") if block and block[0] != ":"]
    lines = [block.split("\n") for block in blocks]
    return [(kind.removeprefix("event: "), data.removeprefix("data: ")) for kind, data in lines]


def test_a_result_can_come_as_events_with_its_rows_in_json_or_arrow(client: Client):
    found = client.sql("SELECT id, name FROM t WHERE id = 1", accept="text/event-stream")
    assert found.headers["content-type"].startswith("text/event-stream")
    (kind, data), *more = [each for each in events(found.body) if each[0] != "progress"]
    assert (kind, more) == ("result", [])
    assert json.loads(data)["rows"] == [[1, "ann"]]
    found = client.sql("SELECT price FROM t", accept="text/event-stream; rows=arrow")
    *parts, (kind, data) = [each for each in events(found.body) if each[0] != "progress"]
    assert {part for part, _ in parts} == {"rows"}
    stream = b"".join(base64.b64decode(part) for _, part in parts)
    assert pa.ipc.open_stream(stream).read_all()["price"].type == pa.decimal128(9, 2)
    assert (kind, json.loads(data).get("rows")) == ("result", None)


def test_an_error_at_once_has_its_status_and_a_later_one_is_an_event(client: Client):
    found = client.sql("SELECT nothing FROM t", accept="text/event-stream")
    assert found.status in (200, 400)  # a machine that is slow begins to answer before
    found = client.sql(LONG, accept="text/event-stream", timeout=2)
    assert found.status == 200
    kind, data = events(found.body)[-1]
    assert (kind, json.loads(data)["error"]["code"]) == ("error", "cancelled")
    assert b'operation="run_sql",outcome="cancelled"' in client.get("/metrics").body


def test_what_a_statement_follows_is_told_as_events_only(client: Client):
    asked = {"accept": "text/event-stream"}
    ((kind, data),) = events(client.sql("SUBSCRIBE t", **asked).body)
    assert (kind, json.loads(data)["sql"]) == ("follow", "SELECT * FROM t")
    ((kind, data),) = events(client.sql("SELECT id FROM t", follow=True, **asked).body)
    assert json.loads(data) == {
        "sql": "SELECT id FROM t",
        "after": None,
        "snapshot": True,
        "limit": None,
        "start": None,
    }
    assert client.sql("SELECT id FROM t", follow=True).status == 422
    assert client.sql("SELECT 1 AS x; SUBSCRIBE t", **asked).status in (200, 422)


def test_a_client_that_leaves_a_stream_of_events_ends_its_statement(server: Served):
    with served(server.database, Limits(statements=1, queued=1)) as small:
        connection = small.client.connected()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        connection.request("POST", "/v1/sql", json.dumps({"sql": LONG}), headers)
        assert connection.getresponse().status == 200
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        assert small.client.rows("SELECT id FROM t WHERE id = 1", timeout=60) == [[1]]


@pytest.mark.long
def test_a_date_that_python_lacks_hides_no_other_in_any_format(client: Client) -> None:
    client.sql("CREATE TABLE far (id INT PRIMARY KEY, d DATE, at TIMESTAMP, l ARRAY<DATE>)")
    client.sql(
        "INSERT INTO far VALUES (1, DATE '2026-01-01', TIMESTAMP '2026-01-01 00:00:00', NULL),"
        " (2, DATE '+10000-01-01', TIMESTAMP '+10000-01-01 00:00:00', array(DATE '-0001-01-01'))"
    )
    rows = [
        [1, "2026-01-01", "2026-01-01T00:00:00Z", None],
        [2, "+10000-01-01", "+10000-01-01T00:00:00Z", ["-0001-01-01"]],
    ]
    query = "SELECT * FROM far ORDER BY id"
    assert client.rows(query) == rows
    assert client.rows("SELECT * FROM far WHERE id = 2") == rows[1:]
    lines = client.sql(query, accept="application/x-ndjson").body.decode().splitlines()
    assert [list(json.loads(line).values()) for line in lines] == rows
    found = list(csv.reader(io.StringIO(client.sql(query, accept="text/csv").body.decode())))
    assert [row[1:3] for row in found[1:]] == [row[1:3] for row in rows]
    arrow = pa.ipc.open_stream(
        client.sql(query, accept="application/vnd.apache.arrow.stream").body
    ).read_all()
    assert arrow["d"].cast(pa.int32()).to_pylist() == [20454, 2932897]


def test_a_server_writes_no_file_where_a_client_says(client: Client, tmp_path) -> None:
    for text in (f"COPY t TO '{tmp_path}/a.csv'", f"COPY (SELECT 1 AS a) TO '{tmp_path}/a.csv'"):
        assert "writing a file over HTTP is not supported" in str(client.sql(text).error)
    assert list(tmp_path.iterdir()) == []
