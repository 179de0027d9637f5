"""A served database through `headrace.connect(url)`: all is as it is embedded."""

from __future__ import annotations

import datetime as dt
import math
import re
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from served import Served

SCRIPT = """
CREATE TABLE {p}_orders (id INT PRIMARY KEY, name STRING, price DECIMAL(9,2), at TIMESTAMP,
  tags ARRAY<STRING>, parts MAP<STRING, INT>, raw BINARY, ratio FLOAT, day DATE,
  place STRUCT<x: DOUBLE, y: DOUBLE>);
INSERT INTO {p}_orders VALUES
  (1, 'ann', 1.50, TIMESTAMP '2026-01-02 03:04:05.678901', array('a', NULL), map('k', 1), X'00ff',
   0.1, DATE '2026-01-02', named_struct('x', 1.5D, 'y', NULL)),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT * FROM {p}_orders ORDER BY id;
SELECT * FROM {p}_orders WHERE id = 1;
SELECT count(*) AS n, sum(price) AS s FROM {p}_orders;
CREATE MATERIALIZED VIEW {p}_totals AS SELECT name, sum(price) AS total FROM {p}_orders GROUP BY name;
SELECT * FROM {p}_totals WHERE name = 'ann';
UPDATE {p}_orders SET price = 3 WHERE id = 2;
SELECT total FROM {p}_totals ORDER BY total;
DELETE FROM {p}_orders WHERE id = 2;
DESCRIBE {p}_totals;
SHOW CREATE TABLE {p}_orders;
EXPLAIN SELECT name FROM {p}_orders;
SET consistency = 'strict';
SHOW consistency;
SELECT x FROM {p}_orders WHERE FALSE AND 1 = id;
VERIFY {p}_totals;
SELECT INTERVAL '1 02:03:04.5' DAY TO SECOND AS i, CAST('NaN' AS DOUBLE) AS f, 1 AS `a b`;
FLUSH;
DROP VIEW {p}_totals;
""".replace("SELECT x FROM", "SELECT id FROM")

WRONG = [
    "SELECT nme\nFROM {p}_orders",
    "-- a comment\nSELECT id FROM {p}_orders WHERE pryce = ?",
    "INSERT INTO {p}_orders (id) VALUES ('x')",
    "CREATE TABLE {p}_orders (x INT)",
    "SELCT 1",
    "SELECT 1 AS x; SELECT 'open",
    "CREATE MATERIALIZED VIEW {p}_v AS\n  SELECT rand() AS r FROM {p}_orders",
    "CREATE MATERIALIZED VIEW {p}_v AS\n  SELECT reflect('java.lang.System', 'exit', 1) AS r",
    "DROP TABLE {p}_nothing",
    "SELECT * FROM {p}_ordrs",
    "UPDATE {p}_orders SET nothing = 1",
    "CREATE TABLE {p}_t (x INT) WITH (connector = 'kafka', topicc = 'x', password = 'hush')",
]
PARAMETERS = [
    None,
    True,
    7,
    -(10**20),
    0.1,
    math.inf,
    Decimal("1.50"),
    "it's \\ ?",
    b"\x00\xff",
    dt.date(2026, 1, 2),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.timedelta(days=-1, seconds=3, microseconds=4),
    [1, 2, None],
]


@pytest.fixture(scope="module")
def remote(server: Served) -> Iterator[headrace.RemoteDatabase]:
    with headrace.connect(server.server.url) as database:
        yield database


def shown(result: Any, prefix: str) -> Any:
    """What two results of the same script have in common: all but epochs and names."""
    fresh = result.freshness
    return (
        result.kind,
        re.sub(r"epoch \d+", "epoch n", result.message.replace(prefix, "p")),
        result.to_arrow().schema,
        re.sub(r"#\d+", "#n", repr(result.fetchall()).replace(prefix, "p")),
        None if fresh is None else fresh.epoch == result.epoch,
        isinstance(result.epoch, int),
    )


def failed(database: Any, sql: str, prefix: str, parameters: Any = None) -> Any:
    with pytest.raises(HeadraceError) as raised:
        database.sql(sql, parameters, file="script.sql")
    error = raised.value
    span = error.span and (error.span.text, error.span.start, error.span.end, error.span.file)
    found = (str(error), error.code, error.primary, error.detail, error.hint, span)
    return repr(found).replace(prefix, "p")


@pytest.mark.long
def test_a_script_has_the_same_results(server: Served, remote: headrace.RemoteDatabase):
    with server.database.session() as embedded:
        wanted = [shown(r, "e1") for r in embedded.script(SCRIPT.format(p="e1"))]
    found = [shown(r, "r1") for r in remote.script(SCRIPT.format(p="r1"))]
    for one, other in zip(found, wanted, strict=True):
        assert one == other


def test_errors_are_the_same_at_the_same_place(server: Served, remote: headrace.RemoteDatabase):
    for database, prefix in ((server.database, "e1"), (remote, "r1")):
        database.sql(
            f"CREATE TABLE IF NOT EXISTS {prefix}_orders (id INT PRIMARY KEY, name STRING)"
        )
    for sql in WRONG:
        parameters = [1] if "?" in sql else None
        assert failed(remote, sql.format(p="r1"), "r1", parameters) == failed(
            server.database, sql.format(p="e1"), "e1", parameters
        )


@pytest.mark.parametrize("value", PARAMETERS, ids=repr)
def test_parameters_of_every_type_are_bound_as_embedded(
    server: Served, remote: headrace.RemoteDatabase, value: Any
):
    found = remote.sql("SELECT ? AS x", [value]).to_arrow()
    assert found == server.database.sql("SELECT ? AS x", [value]).to_arrow()


def test_rows_of_every_kind_are_inserted_exactly_and_seen_by_the_session(
    server: Served, remote: headrace.RemoteDatabase
):
    remote.sql("CREATE TABLE r2 (id INT, price DECIMAL(9,2), day DATE DEFAULT DATE '2026-01-01')")
    assert remote.insert("r2", [(1, Decimal("1.50"), None)]) == 1
    assert remote.insert("r2", [{"id": 2, "PRICE": Decimal("2.50")}, {"id": 3}]) == 2
    assert remote.insert("r2", pa.table({"id": [4]})) == 1
    rows = remote.sql("SELECT id, price FROM r2 ORDER BY id").fetchall()
    assert rows == [(1, Decimal("1.50")), (2, Decimal("2.50")), (3, None), (4, None)]
    for wrong in ([(1,)], [{"idd": 1}], [{"id": "x"}], [{"id": 1, "ID": 2}], pa.table({"x": [1]})):
        messages = set()
        for database in (remote, server.database):
            with pytest.raises(HeadraceError) as raised:
                database.insert("r2", wrong)
            messages.add(str(raised.value))
        assert len(messages) == 1
    assert remote.insert("r2", [(5, None, None)], producer="p", sequence=1) == 1
    remote.insert("r2", [(5, None, None)], producer="p", sequence=1)
    assert len(remote.sql("SELECT id FROM r2")) == 5


def test_what_there_is_is_listed(server: Served, remote: headrace.RemoteDatabase):
    remote.sql("CREATE STREAM r3 (x INT)")
    assert remote.relations() == server.database.relations()
    assert remote.columns("R3") == server.database.columns("R3")
    assert remote.functions() == server.database.functions()
    assert remote.last_epoch() <= server.database.last_epoch()
    assert remote.flush() >= remote.last_epoch() - 1
    assert remote.pending() >= 0
    messages = set()
    for database in (remote, server.database):
        with pytest.raises(HeadraceError) as raised:
            database.columns("r33")
        messages.add(str(raised.value))
    assert len(messages) == 1


@pytest.mark.long
def test_progress_arrives_and_the_statement_can_be_cancelled_by_another_thread(
    server: Served, remote: headrace.RemoteDatabase
):
    def slowly(value: int) -> int:
        time.sleep(0.1)
        return value

    server.database.register("slowly_r", slowly, returns="BIGINT", deterministic=True)
    remote.sql("CREATE TABLE r4 (x BIGINT)")
    remote.insert("r4", [(x,) for x in range(2000)])
    begun = threading.Event()
    cancelling = threading.Thread(
        target=lambda: begun.wait(60) and [remote.cancel() or time.sleep(0.2) for _ in range(20)]
    )
    cancelling.start()
    reports = []

    def report(progress: headrace.Progress) -> None:
        reports.append(progress)
        begun.set()

    with pytest.raises(HeadraceError, match="cancelled") as raised:
        remote.sql(
            "CREATE MATERIALIZED VIEW r4v AS SELECT slowly_r(x) AS y FROM r4", progress=report
        )
    assert raised.value.code is headrace.Code.CANCELLED
    assert reports[0].total is None or reports[0].total >= reports[0].done
    cancelling.join()
    assert remote.sql("SELECT count(*) AS n FROM r4").fetchall() == [(2000,)]


def test_a_session_that_the_server_ended_is_opened_anew_with_its_settings(
    server: Served, remote: headrace.RemoteDatabase
):
    with remote.session() as session:
        session.sql("SET consistency = 'strict'")
        session.sql("SET auto.offset.reset = 'latest'; RESET auto.offset.reset")
        server.server.service.sessions.close_all()
        settings = dict(row[:2] for row in session.sql("SHOW ALL").fetchall())
        assert settings["consistency"] == "strict"
    with pytest.raises(HeadraceError, match="the session is closed"):
        session.sql("SELECT 1 AS x")


def test_what_is_of_the_process_that_has_the_database_open_is_refused(server: Served):
    database = headrace.connect(server.server.url)
    with pytest.raises(HeadraceError, match="--functions"):
        database.register("f", lambda x: x, returns="INT")
    database.close()
    with pytest.raises(HeadraceError, match="headrace serve"):
        headrace.connect(server.server.url, partitions=2)
    with pytest.raises(HeadraceError, match="no encrypted connection"):
        headrace.connect(server.server.url.replace("http", "https"))
    with pytest.raises(HeadraceError, match="token, ca"):
        headrace.connect(server.server.url, nothing=2)
    with pytest.raises(HeadraceError, match="is closed"):
        database.sql("SELECT 1 AS x")


def followed(subscription: Any, rows: int) -> list[tuple[str, int, str]]:
    """The operations, weights and rows of some changes."""
    found: list[tuple[str, int, str]] = []
    while len(found) < rows:
        polled = subscription.poll(1) or []
        found += [(change.operation, change.weight, repr(change.row)) for change in polled]
    subscription.close()
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "SUBSCRIBE r5",
        "SUBSCRIBE (SELECT name, count(*) AS n, max(price) AS m FROM r5 GROUP BY name)",
        "SELECT tags, at, raw FROM r5 EMIT CHANGES",
        "PRINT 'r5' FROM BEGINNING",
        "SELECT id FROM r5 EMIT CHANGES LIMIT 1",
    ],
)
def test_changes_are_followed_as_embedded(
    server: Served, remote: headrace.RemoteDatabase, sql: str
):
    columns = (
        "id INT PRIMARY KEY, name STRING, price DECIMAL(9,2), tags ARRAY<STRING>,"
        " parts MAP<STRING, INT>, at TIMESTAMP, raw BINARY"
    )
    remote.sql(f"DROP TABLE IF EXISTS r5; CREATE TABLE r5 ({columns})")
    values = "array('a'), map('k', 1), TIMESTAMP '2026-01-02 03:04:05', X'00'"
    remote.sql(f"INSERT INTO r5 VALUES (1, 'ann', 1.50, {values}), (2, 'bob', 2, {values})")
    with server.database.session() as embedded, embedded.sql(sql) as there, remote.sql(sql) as here:
        assert here.columns == there.columns
        limited = 1 if "LIMIT" in sql else None
        first = limited or 2
        assert here.poll(10) == there.poll(10)
        if limited:
            assert not here.is_open
            assert not there.is_open
            return
        remote.sql("UPDATE r5 SET price = 9, raw = X'01' WHERE id = 1")
        assert first == 2
        assert followed(here, 2) == followed(there, 2)


def test_a_subscription_begins_and_resumes_where_it_is_told_to(remote: headrace.RemoteDatabase):
    remote.sql("CREATE TABLE r6 (x INT); INSERT INTO r6 VALUES (1)")
    with remote.sql("SUBSCRIBE r6 WITH (SNAPSHOT = false)") as latest:
        assert latest.epoch is not None
        remote.sql("INSERT INTO r6 VALUES (2)")
        assert followed(latest, 1) == [("+I", 1, "{'x': 2}")]
    with remote.subscribe("r6") as first:
        assert len(first.poll(10) or []) == 2
        at = first.epoch
    remote.sql("INSERT INTO r6 VALUES (3)")
    assert followed(remote.subscribe("r6", after=at), 1) == [("+I", 1, "{'x': 3}")]
    with remote.session() as session:
        session.sql("SET execution.runtime-mode = 'streaming'")
        with session.sql("SELECT x FROM r6 WHERE x > ?", [1]) as pushed:
            assert pushed.kind == "changes"
            assert len(pushed.poll(10) or []) == 2
    assert not pushed.is_open


def test_the_example_of_the_documentation_runs(
    server: Served, remote: headrace.RemoteDatabase, capsys: pytest.CaptureFixture[str]
):
    text = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    remote.sql(
        "CREATE TABLE shown_orders (id INT PRIMARY KEY, name STRING, price DECIMAL(9,2));"
        "CREATE MATERIALIZED VIEW shown_totals AS"
        " SELECT name, sum(price) AS total FROM shown_orders GROUP BY name"
    )
    address = example.replace("http://127.0.0.1:8088", server.server.url)
    exec(re.sub(r"\b(orders|totals)\b", r"shown_\1", address), {})  # noqa: S102
    assert capsys.readouterr().out == "cid 4.25\n"
