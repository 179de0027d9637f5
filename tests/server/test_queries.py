"""Queries in processes of their own: what they may not harm, and what ends with them."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.execution.runtime.step import RowsShare
from headrace.interfaces.processes.messages import AskRows, Child
from headrace.interfaces.processes.queries import QueryProcesses, QuerySettings
from served import Answer, Client, Events, Served, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

REGEX = "SELECT regexp_like(repeat(left(name, 1), 40000), '(a+)+$b') AS x FROM t WHERE id = 1"
"""It never ends, and cannot be interrupted."""
MERGED = """
CREATE TABLE k (x INT PRIMARY KEY, n INT); INSERT INTO k VALUES (1, 2), (2, 3);
INSERT INTO k VALUES (2, 4), (3, 5) ON CONFLICT (x) DO UPDATE SET n = n * excluded.n;
SELECT sum(n) AS n FROM k"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("apart") / "db"
    with headrace.connect(directory, spark=spark, partitions=PARTITIONS) as database:
        database.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, name STRING);"
            "INSERT INTO t VALUES (1, 'ann'), (2, NULL), (3, 'bob');"
            "CREATE VIEW shown AS SELECT id, upper(name) AS name FROM t;"
            "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n, count(name) AS named FROM t;"
            "CREATE STREAM s (x INT); INSERT INTO s VALUES (1), (2)"
        )
        with served(database, queries=QuerySettings(most=2, memory="512m")) as running:
            yield running


@pytest.fixture
def client(apart: Served) -> Client:
    """A client that is patient: on a busy machine, processes take long to start."""
    return Patient(apart.server.address.port, seconds=400)


@dataclass
class Patient(Client):
    def sql(
        self, sql: str, parameters: Any = None, accept: str | None = None, **more: Any
    ) -> Answer:
        return super().sql(sql, parameters, accept, **{"timeout": 300, **more})


def processes(apart: Served) -> list[int]:
    """The process groups of the queries' processes."""
    found = apart.server.service.query_processes
    assert found is not None
    return [process.child.pid for process in found._all]


def in_groups(groups: list[int]) -> list[str]:
    """What runs in some process groups."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(") ")
        except OSError:
            continue
        state, _, group = rest.split()[:3]
        if int(group) in groups and state != "Z":
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id FROM t WHERE name >= 'b'", [[3]]),
        ("SELECT s.x, named FROM s JOIN counted ON s.x < named", [[1, 2]]),
        ("SELECT x + 1 AS y FROM s WHERE x > 1 LIMIT 3", [[3]]),
        pytest.param("SELECT name FROM shown WHERE id = 1", [["ANN"]], marks=pytest.mark.long),
        ("SELECT max(id) AS m FROM t AS OF EPOCH 2", [[3]]),
        pytest.param(
            "SELECT count(*) AS n FROM t VERSION AS OF 2 a JOIN t b ON a.id <= b.id",
            [[6]],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT sum(headrace_weight) AS n FROM t FOR CHANGES FROM EPOCH 1 WHERE id > 1",
            [[2]],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW'",
            [["shown"]],
            marks=pytest.mark.long,
        ),
        (
            "CREATE TABLE u (x INT); INSERT INTO u SELECT id + 1 FROM t; SELECT sum(x) AS x FROM u",
            [[9]],
        ),
        pytest.param(MERGED, [[19]], marks=pytest.mark.long),
        ("UPDATE u SET x = 2 * x WHERE x > 2; SELECT max(x) AS x, count(*) AS n FROM u", [[8, 3]]),
    ],
)
def test_a_query_has_the_rows_that_it_has_in_the_process_of_epochs(
    apart: Served, client: Client, sql: str, rows: list[list[object]]
):
    before = apart.server.service.query_processes
    assert client.rows(sql) == rows
    assert before is not None
    assert before.count >= 1
    last = sql.rpartition(";")[2]
    assert [list(row) for row in apart.database.sql(last)] == rows


def test_while_no_process_answers_queries_are_parsed_names_resolved_and_ready_says_so(
    apart: Served, client: Client, monkeypatch: pytest.MonkeyPatch
):
    client.sql("SELECT id + 1 AS x FROM t")
    assert client.get("/readyz", serves="queries").json["serves"][-1] == "queries"
    monkeypatch.setattr(QueryProcesses, "are_ready", property(lambda _: False))
    monkeypatch.setattr(QueryProcesses, "_taken_when_idle", lambda self: self._waits())
    monkeypatch.setattr(QueryProcesses, "_waits", _waits, raising=False)
    for sql, primary, hint in (
        ("SELECT nam FROM t", 'column "nam" does not exist', 'Did you mean "name"?'),
        ("SELECT id FROM tt", 'stream, table or view "tt" does not exist', 'Did you mean "t"?'),
    ):
        wrong = client.sql(sql)
        assert (wrong.status, wrong.error["primary"], wrong.error["hint"]) == (400, primary, hint)
    with pytest.raises(headrace.HeadraceError) as caught:
        apart.database.sql("SELECT id FROM t ORDER id")
    wrong = client.sql("SELECT id FROM t ORDER id", timeout=5)
    assert (wrong.status, wrong.error["primary"]) == (400, caught.value.primary)
    for sql in ("INSERT INTO t SELECT size(array(7)), 'x'", "INSERT INTO t SELECT id, name FROM t"):
        late = client.sql(sql, timeout=0.5)
        assert (late.status, late.error["detail"]) == (
            408,
            "It waited for the query process, which was still starting.",
        )
    assert client.get("/readyz", serves="queries").status == 503
    ready = client.get("/readyz").json
    assert ready["serves"] == ["lookups", "writes"]
    assert ready["waits"] == ["queries were not answered yet: the query process was starting"]
    assert client.rows("SELECT name FROM t WHERE id = 1") == [["ann"]]
    assert client.rows("SELECT name, count(*) FROM t WHERE id IN (1, 5) GROUP BY name") == [
        ["ann", 1]
    ]


def _waits(processes: QueryProcesses) -> None:
    """Wait for a process that never answers."""
    while True:
        time.sleep(0.05)
        processes._check_cancelled()


def test_rows_are_found_by_an_index(client: Client, monkeypatch: pytest.MonkeyPatch):
    client.sql(
        "CREATE TABLE dogs (id INT PRIMARY KEY, kind STRING); CREATE INDEX ON dogs (kind);"
        "INSERT INTO dogs VALUES (1, 'pug'), (2, 'pug'), (3, 'collie')"
    )
    asked, ask = [], Child.ask

    def recorded(self: Child, message: object, *more: Any, **how: Any) -> Any:
        asked.append(message)
        return ask(self, message, *more, **how)

    monkeypatch.setattr(Child, "ask", recorded)
    assert client.rows("SELECT id + 1 AS x FROM dogs WHERE kind = 'pug'") == [[2], [3]]
    (question,) = (message for message in asked if isinstance(message, AskRows))
    (index,) = question.indexes
    assert isinstance(index, RowsShare)
    assert index.layout.key == ("kind",)


def test_an_error_has_its_place(client: Client):
    error = client.sql("SELECT id,\n  nme FROM t").error
    assert error["primary"] == 'column "nme" does not exist'
    assert (error["span"]["start"], error["span"]["end"]) == (13, 16)
    assert error["hint"].startswith("Did you mean")
    assert client.sql("SELECT id / (id - id) FROM t").error["code"] == "invalid"


def test_names_are_those_of_the_catalog_of_the_moment(client: Client):
    client.sql("CREATE TABLE v (x INT); CREATE VIEW w AS SELECT x AS a FROM v")
    client.sql("INSERT INTO v VALUES (4)")
    assert client.rows("SELECT -a AS a FROM w") == [[-4]]
    client.sql("DROP VIEW w; CREATE VIEW w AS SELECT x + 1 AS a FROM v")
    assert client.rows("SELECT -a AS a FROM w") == [[-5]]
    client.sql("DROP VIEW w; DROP TABLE v")
    assert client.sql("SELECT -a AS a FROM w").error["code"] == "invalid"


def test_registered_functions_can_be_called(apart: Served, client: Client):
    apart.database.register("times", lambda x: 2 * x, returns="INT", deterministic=True)
    assert client.rows("SELECT times(id) AS d FROM t") == [[2], [4], [6]]
    apart.database.register(
        "times", lambda x: 3 * x, returns="INT", deterministic=True, replace=True
    )
    assert client.rows("SELECT times(id) AS d FROM t") == [[3], [6], [9]]


@pytest.mark.long
def test_a_query_that_cannot_be_cancelled_is_ended_with_its_process(apart: Served, client: Client):
    """Meanwhile epochs are made, lookups answer, and other queries run."""
    client.rows("SELECT 1 AS x")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(client.sql, REGEX, timeout=3)
        epoch = apart.database.last_epoch()
        while not hanging.done():
            written = client.sql("INSERT INTO s VALUES (3)")
            epoch = apart.database.flush()
            shown = client.get("/v1/views/t", key=1)
            assert (written.status, shown.status) == (200, 200)
            assert shown.json["rows"] == [[1, "ann"]]
            time.sleep(0.1)
        found = hanging.result()
    assert apart.database.last_epoch() >= epoch
    assert found.status == 408
    assert found.error["primary"] == "the statement was cancelled after its timeout of 3 s"
    assert client.rows("SELECT max(id) + 1 AS x FROM t") == [[4]]


@pytest.mark.long
def test_a_query_that_exhausts_the_heap_is_refused(client: Client):
    found = client.sql("SELECT repeat(name, 700000000) AS x FROM t WHERE id = 1")
    assert found.status == 422, found.body
    assert found.error["primary"] == "the query needs more memory than a query may use"
    assert found.error["span"]["text"].startswith("SELECT repeat")
    assert client.rows("SELECT max(id) + 2 AS x FROM t") == [[5]]


@pytest.mark.long
def test_what_is_planned_elsewhere_is_as_without_processes(client: Client):
    assert client.rows("EXPLAIN LINEAGE SELECT id FROM shown")
    client.sql("CREATE MATERIALIZED VIEW doubled AS SELECT 2 * id AS d FROM t")
    assert client.rows("SELECT d FROM doubled WHERE d > 4") == [[6]]
    assert client.sql("CREATE VIEW none AS SELECT nme FROM t").error["span"]["start"] == 27
    with Events(client, sql="SELECT id + 1 AS next FROM t") as events:
        assert {row["next"] for row in next(iter(events)).data["rows"]} == {2, 3, 4}


@pytest.mark.long
def test_a_result_that_exhausts_the_heap_is_refused(client: Client):
    found = client.sql("SELECT explode(sequence(1, 999999999 + id)) AS x FROM t")
    assert found.status == 422, found.body
    assert client.rows("SELECT max(id) + 5 AS x FROM t") == [[8]]


@pytest.mark.long
def test_a_job_that_is_cancelled_leaves_no_tasks(client: Client):
    many = "(SELECT explode(sequence(1, 200000)) AS x)"
    found = client.sql(f"SELECT count(*) FROM {many} a, {many} b, {many} c", timeout=2)
    assert (found.status, found.error["code"]) == (408, "cancelled")
    assert client.rows("SELECT max(id) + 3 AS x FROM t") == [[6]]


@pytest.mark.long
def test_a_process_that_is_killed_is_replaced_and_only_its_query_fails(
    apart: Served, client: Client
):
    client.rows("SELECT 2 AS x")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.sql, REGEX, timeout=60)
        queries = apart.server.service.query_processes
        assert queries is not None
        while not (busy := [p for p in queries._all if p not in queries._idle and p.answers]):
            time.sleep(0.01)
        os.kill(busy[0].child.pid, signal.SIGKILL)
        found = waiting.result()
    assert found.status == 503
    assert found.headers["retry-after"] == "1"
    assert found.error["primary"] == "the process that ran the query has ended"
    assert client.rows("SELECT max(id) + 4 AS x FROM t") == [[7]]


def test_with_the_server_its_processes_end(apart: Served):
    queries = apart.server.service.query_processes
    assert queries is not None
    groups = processes(apart)
    assert in_groups(groups)
    queries.close()
    deadline = time.monotonic() + 30
    while in_groups(groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not in_groups(groups)
    assert apart.client.sql("SELECT 3 AS x").error["code"] == "unavailable"
