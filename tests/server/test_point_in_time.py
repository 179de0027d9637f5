"""POST /v1/as_of, and ``as_of`` of a connected database: as it is embedded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.interfaces.remote.subscription import read, written

if TYPE_CHECKING:
    from served import Answer, Client, Served

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
AT = datetime(2026, 3, 5, tzinfo=UTC)
ROWS = [{"who": "ann", "at": "2026-03-05T00:00:00Z"}, {"who": None, "at": None, "label": 1}]


@pytest.fixture(scope="module")
def rates(server: Served) -> str:
    server.client.sql(
        "CREATE TABLE rates (who STRING, since TIMESTAMP, rate DECIMAL(9,2), PRIMARY KEY (who))"
        " WITH (effective_from = 'since');"
        "INSERT INTO rates VALUES ('ann', TIMESTAMP '2026-03-01 00:00:00', 1.50),"
        " ('ann', TIMESTAMP '2026-03-05 00:00:01', 2.50);"
        "FLUSH"
    )
    return "rates"


def asked(client: Client, body: Any, kind: str = LINES, **query: Any) -> Answer:
    accept = {"Accept": ARROW} if kind == ARROW else {}
    return client.ask("POST", "/v1/as_of", body, {"Content-Type": kind, **accept}, **query)


def test_lines_and_arrow_are_answered(client: Client, rates: str):
    body = "".join(json.dumps(row) + "\n\n" for row in ROWS)
    found = asked(client, body, view=rates, time="at")
    assert [column["name"] for column in found.json["columns"]] == ["who", "at", "label", "rate"]
    assert found.json["rows"] == [
        ["ann", "2026-03-05T00:00:00Z", None, "1.50"],
        [None, None, 1, None],
    ]
    assert found.json["freshness"]["dirty"] == []
    table = pa.table({"WHO": ["ann", "ann"], "at": pa.array([AT, AT.replace(year=2027)])})
    view = f"{rates}(rate AS r, since)"
    answer = asked(client, written(table), ARROW, view=view)
    found = read([answer.body]) if answer.status == 200 else answer.error
    assert [str(value) for value in found["r"].to_pylist()] == ["1.50", "2.50"]
    assert found["since"].to_pylist()[0] == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("body", "query", "what"),
    [
        ("{}", {}, "no view is asked for"),
        ("{}", {"view": "rates"}, "the time of the pairs is not known"),
        ("x", {"view": "rates"}, "line 1 of the body is not JSON"),
        ("[1]", {"view": "rates"}, "line 1 of the body is not a JSON object"),
        ('{"who": "a", "at": "soon"}', {"view": "rates", "time": "at"}, "is not a TIMESTAMP"),
        ('{"who": "a", "at": "2026-03-05"}', {"view": "rtes", "time": "at"}, "does not exist"),
    ],
)
def test_what_is_malformed_is_refused(client: Client, rates: str, body, query, what):
    assert rates
    answer = asked(client, body, **query)
    assert answer.status == 400
    assert what in answer.error["primary"]


def test_a_connected_database_reads_as_an_embedded_one(server: Served, rates: str):
    pairs = pa.table({"who": ["ann", "bob"], "at": pa.array([AT, AT])})
    with headrace.connect(server.server.url) as db:
        for views in ([f"{rates}(rate AS r)"], {rates: {"rate": "r"}}):
            found = db.as_of(pairs, views)
            own = server.database.as_of(pairs, views)
            assert found.to_arrow().equals(own.to_arrow())
            assert found.freshness == own.freshness
        assert db.as_of(pairs.to_pandas(), rates).fetchall()[1][2] is None
        with pytest.raises(HeadraceError, match="does not exist") as raised:
            db.as_of(pairs, ["nothing"])
        assert raised.value.code is Code.INVALID
