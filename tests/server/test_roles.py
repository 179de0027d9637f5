"""Who may do what: tokens, roles by schema, every route and every class of statements."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import headrace
from headrace.interfaces.server.entrance import Least
from headrace.interfaces.server.routes import ROUTES
from headrace.planning.catalog import View
from served import Client, Events, Served, served
from server.browser import ENTER, browser
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

SETUP = """
CREATE SCHEMA gold; CREATE SCHEMA hr;
CREATE TABLE items (k INT PRIMARY KEY, name STRING);
CREATE TABLE hr.salaries (k INT PRIMARY KEY, salary INT);
INSERT INTO items VALUES (1, 'one'); FLUSH; INSERT INTO hr.salaries VALUES (1, 4711); FLUSH;
CREATE MATERIALIZED VIEW gold.pay AS SELECT k, salary > 1000 AS high FROM hr.salaries;
CREATE VIEW gold.plain AS SELECT k FROM hr.salaries;
CREATE VIEW gold.plainer AS SELECT k FROM gold.plain;
CREATE VIEW gold.open AS SELECT p.k FROM gold.pay p;
CREATE MATERIALIZED VIEW gold.kept AS SELECT k FROM gold.plainer;
CREATE TABLE hr.people (k INT PRIMARY KEY, shown BOOLEAN, name STRING);
INSERT INTO hr.people VALUES (1, false, 'topsecret'), (2, true, '7');
CREATE VIEW gold.safe AS SELECT k, name FROM hr.people WHERE shown;
CREATE INDEX by_salary ON hr.salaries (salary);
CREATE TABLE gold.notes (k INT PRIMARY KEY, note STRING);
CREATE STREAM hr.events (k INT) WITH (kafka_topic = 'secret_events');
"""
WHO = {
    "owner": ["GRANT OWNER ON DATABASE TO owner"],
    "writer": ["GRANT WRITER ON DATABASE TO writer"],
    "reader": ["GRANT READER ON DATABASE TO reader"],
    "golden": ["GRANT READER ON SCHEMA gold TO golden"],
    "keeper": ["GRANT OWNER ON SCHEMA gold TO keeper", "GRANT READER ON SCHEMA default TO keeper"],
    "nobody": [],
}


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[tuple[Served, dict[str, Client]]]:
    directory = tmp_path_factory.mktemp("roles") / "db"
    with headrace.connect(directory, spark=spark, partitions=PARTITIONS) as database:
        database.sql(SETUP)
        secrets = {}
        for name, grants in WHO.items():
            made = database.sql(f"CREATE TOKEN {name}")
            assert isinstance(made, headrace.Result)
            secrets[name] = made.to_arrow()["secret"][0].as_py()
            for grant in grants:
                database.sql(grant)
        with served(database) as running:
            yield running, {n: running.client.having(secret) for n, secret in secrets.items()}


@pytest.fixture
def who(place: tuple[Served, dict[str, Client]]) -> dict[str, Client]:
    return place[1]


# -- routes --------------------------------------------------------------------------------------

PASSED = {200, 201, 400, 404, 406, 410, 415, 422}
"""The statuses of requests that were let in, whatever became of them."""
EXPECTED: Mapping[Least, frozenset[str]] = {
    Least.NOTHING: frozenset({*WHO, "-"}),
    Least.TOKEN: frozenset(WHO),
    Least.READER: frozenset({"owner", "writer", "reader", "golden", "keeper"}),
    Least.WRITER: frozenset({"owner", "writer", "keeper"}),
    Least.READER_OF_ALL: frozenset({"owner", "writer", "reader"}),
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_has_a_least_role(
    place: tuple[Served, dict[str, Client]], route: headrace.interfaces.server.routes.Route
):
    running, who = place
    path = re.sub(r"{\w+(:path)?}", "none", route.path.replace("{name}", "gold.notes"))
    for name, client in {**who, "-": running.client}.items():
        headers = {"Origin": running.server.url}
        answer = client.ask(route.method, path, headers=headers, reads=False)
        if name in EXPECTED[route.least]:
            assert answer.status in PASSED or route.path == "/v1/login", (name, answer.body)
        else:
            assert answer.status == (401 if name == "-" else 403), (name, answer.body)
            assert answer.error["code"] == "forbidden"


@pytest.mark.parametrize(
    "given", ["Bearer wrong", "Bearer", "Basic b3duZXI6", "bearer hrt_", "Bearer  "]
)
def test_a_wrong_token_is_answered_with_401(place: tuple[Served, dict[str, Client]], given: str):
    answer = place[0].client.ask("GET", "/v1/views/items", headers={"Authorization": given})
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="headrace"'
    assert "token" in answer.error["hint"]


def test_a_socket_needs_what_a_request_needs(place: tuple[Served, dict[str, Client]]):
    running, who = place
    path = f"ws://127.0.0.1:{running.client.port}/v1/subscribe?view=hr.salaries"
    for name, status in (("-", 401), ("golden", 403)):
        headers = who[name].headers if name in who else {}
        with pytest.raises(InvalidStatus) as refused, connect(path, additional_headers=headers):
            pass
        assert refused.value.response.status_code == status
    with connect(path, additional_headers=who["reader"].headers) as socket:
        assert "4711" in socket.recv(timeout=60)


@pytest.mark.long
def test_a_browser_signs_in_sees_what_its_token_may_and_signs_out(
    place: tuple[Served, dict[str, Client]],
):
    running, who = place
    with browser(running.server.url) as page:
        page.open("")
        page.wait_for("Sign in", "#login")
        page.press("wrong", ENTER)
        page.wait_for("this token is not valid", "#login")
        page.press(who["golden"].headers["Authorization"].removeprefix("Bearer "), ENTER)
        page.wait_for("gold.pay", ".graph")
        page.wait(lambda: page.text("#live").startswith("up to date"), "a live connection")
        assert "hr.salaries" not in page.text()
        page.run("document.querySelector('#sign-out button').click()")
        page.wait_for("Sign in", "#login")


# -- statements ----------------------------------------------------------------------------------

SHADOWED = """
SELECT * FROM `hr.salaries` WHERE k IN (WITH `hr.salaries` AS (SELECT 1 AS k) SELECT k FROM `hr.salaries`)
"""
UPSERT = """
INSERT INTO gold.notes VALUES (1, 'a') ON CONFLICT (k)
DO UPDATE SET note = (SELECT string(max(salary)) FROM hr.salaries)
"""
READS_SALARIES = [
    "SELECT * FROM hr.salaries",
    "SELECT * FROM hr.salaries WHERE k = 1",
    "SELECT * FROM `hr.salaries`",
    "SELECT * FROM hr.salaries AS OF EPOCH 3",
    "SELECT k FROM gold.pay WHERE k IN (SELECT k FROM hr.salaries)",
    "SELECT (SELECT max(salary) FROM hr.salaries) AS m FROM gold.pay",
    "WITH c AS (SELECT * FROM hr.salaries) SELECT * FROM c",
    "WITH c AS (WITH d AS (SELECT * FROM hr.salaries) SELECT * FROM d) SELECT * FROM c",
    SHADOWED,
    "WITH `hr.salaries` AS (SELECT * FROM `hr.salaries`) SELECT * FROM `hr.salaries`",
    "SELECT * FROM gold.pay p, LATERAL (SELECT salary FROM hr.salaries s WHERE s.k = p.k) x",
    "SELECT * FROM gold.pay UNION ALL SELECT k, true FROM hr.salaries",
    "TABLE hr.salaries",
    "FROM hr.salaries",
    "EXPLAIN SELECT * FROM hr.salaries",
    "EXPLAIN gold.pay",
    "EXPLAIN SELECT * FROM gold.plain",
    "SHOW CREATE VIEW gold.pay",
    "DESCRIBE hr.salaries",
    "DESCRIBE EXTENDED gold.pay",
    "VERIFY hr.salaries",
    "SHOW RECONCILIATION FOR hr.salaries",
    "SHOW EVIDENCE FOR hr.salaries",
    "SHOW ERRORS FOR gold.pay",
    "RECONCILE VIEW hr.salaries",
    "REPLAY VIEW gold.pay WHERE k = 1",
    "EXPLAIN REPLAY VIEW gold.pay",
    "EXPLAIN ROW gold.pay WHERE k = 1",
    "VERIFY",
    "SHOW REJECTS FOR hr.salaries",
    "ACKNOWLEDGE REJECTS FOR hr.salaries",
    "REFRESH hr.salaries",
    "INSERT INTO gold.notes SELECT k, CAST(salary AS STRING) FROM hr.salaries",
    "UPDATE gold.notes SET note = (SELECT CAST(max(salary) AS STRING) FROM hr.salaries)",
    "DELETE FROM gold.notes WHERE k IN (SELECT k FROM hr.salaries)",
    "CREATE VIEW gold.evil AS SELECT * FROM hr.salaries",
    "CREATE MATERIALIZED VIEW gold.evil AS SELECT * FROM hr.salaries",
    "CREATE TABLE gold.evil AS SELECT * FROM hr.salaries",
    "SELECT * FROM __log_2",
    UPSERT,
    "FROM gold.pay |> JOIN hr.salaries USING (k)",
    "SELECT transform(array(1), x -> (SELECT max(salary) FROM hr.salaries)) AS s",
    "CREATE SINK s INTO gold.notes FROM hr.salaries",
    "CREATE STREAM gold.s AS SELECT * FROM hr.events",
    "SELECT * FROM hr.nothing",
]


@pytest.mark.parametrize("sql", READS_SALARIES)
def test_no_statement_reads_what_its_token_may_not(who: dict[str, Client], sql: str):
    for name in ("golden", "keeper", "nobody"):
        answer = who[name].sql(sql)
        assert answer.status == 403, (name, answer.body)
        assert b"4711" not in answer.body
    assert who["golden"].sql("SELECT * FROM gold.notes").json["rows"] == []


def test_what_is_followed_is_what_may_be_read(place: tuple[Served, dict[str, Client]]):
    running, who = place
    with Events(who["reader"], view="hr.salaries") as events:
        assert next(iter(events)).data["rows"] == [{"k": 1, "salary": 4711}]
        for query in ({"view": "hr.salaries"}, {"sql": "SELECT * FROM hr.salaries"}):
            assert who["golden"].get("/v1/subscribe", **query).status == 403
            assert running.client.get("/v1/subscribe", **query).status == 401
    with Events(who["reader"], sql="SELECT salary FROM hr.salaries WHERE k > 0") as events:
        assert next(iter(events)).data["rows"] == [{"salary": 4711}]
        (hidden,) = (
            r.name
            for r in running.database.parts.reader.catalog
            if r.name.startswith("__") and not (isinstance(r, View) and r.index)
        )
        for answer in (
            who["keeper"].get(f"/v1/views/{hidden}"),
            who["keeper"].get("/v1/subscribe", view=hidden),
            who["keeper"].sql(f"SELECT * FROM {hidden}"),
            who["keeper"].sql(f"SELECT salary + 1 FROM `{hidden}`"),
        ):
            assert answer.status == 403, answer.body
    for client, sql in (
        (who["golden"], "SELECT k FROM gold.open WHERE k > 0"),
        (who["golden"], "SELECT k FROM gold.kept WHERE k > 0"),
        (who["reader"], "SELECT k FROM gold.plainer WHERE k > 0"),
    ):
        with Events(client, sql=sql) as events:
            assert next(iter(events)).data["rows"] == [{"k": 1}]
    assert who["golden"].get("/v1/views/hr.salaries").status == 403
    assert who["golden"].get("/v1/views/hr.nothing").status == 403


PLAIN = [
    "SELECT * FROM gold.safe",
    "SELECT * FROM gold.safe WHERE CAST(name AS INT) = 7",
    "SELECT * FROM gold.plainer WHERE k = 1",
    "EXPLAIN SELECT * FROM gold.safe WHERE CAST(name AS INT) = 7",
    "EXPLAIN gold.safe",
    "SHOW CREATE VIEW gold.safe",
    "DESCRIBE EXTENDED gold.safe",
    "WITH c AS (SELECT k FROM gold.safe) SELECT * FROM gold.pay WHERE k IN (SELECT k FROM c)",
    "INSERT INTO gold.notes SELECT k, name FROM gold.safe",
    "UPDATE gold.notes SET note = (SELECT max(name) FROM gold.safe)",
    "DELETE FROM gold.notes WHERE k IN (SELECT k FROM gold.safe)",
    "CREATE VIEW gold.evil AS SELECT CAST(name AS INT) AS n FROM gold.safe",
    "CREATE MATERIALIZED VIEW gold.evil AS SELECT CAST(name AS INT) AS n FROM gold.safe",
    "CREATE TABLE gold.evil AS SELECT * FROM gold.safe",
    "CREATE SINK gold.evil INTO gold.notes FROM gold.safe",
    "VERIFY gold.safe",
]


@pytest.mark.parametrize("sql", PLAIN)
def test_a_plain_view_needs_a_reader_of_all_that_it_reads(who: dict[str, Client], sql: str):
    for name in ("golden", "keeper"):
        answer = who[name].sql(sql)
        assert answer.status == 403, (name, answer.body)
        assert b"topsecret" not in answer.body
        assert b"hr" not in answer.body.replace(b"hrt_", b""), answer.body
    assert "MATERIALIZED VIEW" in answer.error["hint"]


def test_a_plain_view_is_refused_wherever_it_is_read(place: tuple[Served, dict[str, Client]]):
    running, who = place
    secret = who["golden"].headers["Authorization"].removeprefix("Bearer ")
    with headrace.connect(running.server.url, token=secret) as golden:
        for sql in (
            "SELECT * FROM gold.safe EMIT CHANGES LIMIT 1",
            "SUBSCRIBE gold.safe",
            "SUBSCRIBE (SELECT k FROM gold.safe)",
            "PRINT 'gold.safe'",
        ):
            with pytest.raises(headrace.HeadraceError) as raised:
                golden.sql(sql)
            assert raised.value.code is headrace.Code.FORBIDDEN, sql
    for answer in (
        who["golden"].get("/v1/views/gold.safe"),
        who["golden"].get("/v1/views/gold.safe", where="name=7"),
        who["golden"].get("/v1/views/gold.plainer", key="1"),
        who["golden"].get("/v1/subscribe", view="gold.safe"),
        who["golden"].get("/v1/subscribe", sql="SELECT k FROM gold.safe WHERE name > ''"),
    ):
        assert answer.status == 403, answer.body
        assert "MATERIALIZED VIEW" in answer.error["hint"]
        assert b"hr." not in answer.body
    assert who["reader"].rows("SELECT k FROM gold.safe") == [[2]]
    assert who["reader"].get("/v1/views/gold.safe").json["rows"] == [[2, "7"]]
    assert who["golden"].rows("SELECT k FROM gold.kept") == [[1]]
    assert who["golden"].rows("SELECT k FROM gold.open") == [[1]]
    assert who["golden"].get("/v1/views/gold.open").json["rows"] == [[1]]


@pytest.mark.long
def test_event_times_of_a_derived_stream_need_a_reader_of_what_it_reads(who: dict[str, Client]):
    owner, golden = who["owner"], who["golden"]
    owner.sql("CREATE STREAM hr.seen (k INT, name STRING)")
    owner.sql("INSERT INTO hr.seen VALUES (1, 'topsecret'), (9, '7')")
    owner.sql("CREATE STREAM gold.derived AS SELECT k, name FROM hr.seen WHERE k > 5")
    owner.sql("CREATE VIEW gold.timed AS SELECT ROWTIME AS t, k FROM gold.derived")
    try:
        assert golden.rows("SELECT k FROM gold.derived WHERE CAST(name AS INT) = 7") == [[9]]
        for sql in (
            "SELECT ROWTIME, k FROM gold.derived WHERE CAST(name AS INT) = 7",
            "SELECT k FROM gold.derived WHERE ROWTIME > 0",
            "SELECT k, count(*) FROM gold.derived WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k",
            "SELECT k FROM gold.timed",
        ):
            refused = golden.sql(sql)
            assert refused.status == 403, (sql, refused.body)
            assert b"hr" not in refused.body
            assert b"__" not in refused.body
            assert len(who["reader"].rows(sql)) == 1
    finally:
        owner.sql("DROP VIEW gold.timed; DROP STREAM gold.derived; DROP STREAM hr.seen")


def test_names_of_indexes_tell_nothing_to_owners_of_other_schemas(who: dict[str, Client]):
    keeper = who["keeper"]
    for schema in ("", "hr.", "gold."):
        there, not_there = (
            keeper.sql(f"DROP INDEX {schema}{name}") for name in ("by_salary", "by_nothing")
        )
        assert there.status == not_there.status
        shown = there.body.decode().replace("by_salary", "by_nothing")
        sizes = re.compile(r'"(?:length|end|column|offset)":\s*\d+')
        assert sizes.sub("", shown) == sizes.sub("", not_there.body.decode())
    assert keeper.sql("DROP INDEX gold.by_salar").error["hint"].startswith("SHOW INDEXES")
    assert keeper.sql("CREATE INDEX by_salary ON gold.notes (note)").status == 200
    again = keeper.sql("CREATE INDEX gold.by_salary ON gold.notes (note)")
    assert "exists already" in again.error["primary"]
    assert keeper.sql("CREATE INDEX hr.mine ON gold.notes (note)").error["code"] == "invalid"
    assert keeper.rows("SHOW INDEXES") == [["gold.by_salary", "gold.notes", "note"]]
    assert keeper.sql("DROP INDEX gold.by_salary").status == 200
    assert ["hr.by_salary", "hr.salaries", "salary"] in who["reader"].rows("SHOW INDEXES")


def test_a_materialized_view_is_read_with_the_rights_of_whoever_created_it(who: dict[str, Client]):
    golden = who["golden"]
    assert golden.rows("SELECT * FROM gold.pay") == [[1, True]]
    assert golden.rows("SELECT count(*) AS n FROM gold.kept") == [[1]]
    assert golden.rows("WITH items AS (SELECT 2 AS k) SELECT k FROM items") == [[2]]
    recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3)"
    assert golden.rows(f"{recursive} SELECT n FROM r") == [[1], [2], [3]]
    assert golden.get("/v1/views/gold.pay").json["rows"] == [[1, True]]


def test_rows_as_of_their_times_need_a_reader_of_each_view(who: dict[str, Client]):
    golden, later = who["golden"], "now() + INTERVAL '1' DAY AS at"
    pairs = f"(SELECT 1 AS k, {later})"
    assert golden.rows(f"SELECT high FROM AS_OF({pairs}, gold.pay)") == [[True]]
    for call in (
        f"AS_OF({pairs}, hr.salaries)",
        f"AS_OF({pairs}, gold.pay, hr.salaries(salary))",
        f"AS_OF((SELECT k, {later} FROM hr.salaries), gold.pay)",
        f"AS_OF({pairs}, hr.nothing)",
        f"AS_OF((SELECT k, at FROM AS_OF({pairs}, hr.salaries)), gold.pay)",
    ):
        answer = golden.sql(f"SELECT * FROM {call}")
        assert answer.status == 403, (call, answer.body)
    line, kind = '{"k": 1, "at": "2999-01-01T00:00:00Z"}', {"Content-Type": "application/x-ndjson"}
    for view, status in (("gold.pay", 200), ("hr.salaries", 403), ("hr.nothing", 403)):
        answer = golden.ask(
            "POST", "/v1/as_of", line, kind, view=["gold.pay(high AS h)", view], time="at"
        )
        assert answer.status == status, answer.body


@pytest.mark.parametrize(
    ("sql", "least"),
    [
        ("INSERT INTO gold.notes VALUES (7, 'x')", "writer"),
        ("UPDATE gold.notes SET note = 'y' WHERE k = 7", "writer"),
        ("DELETE FROM gold.notes WHERE k = 7", "writer"),
        ("TRUNCATE gold.notes", "writer"),
        ("CREATE TABLE gold.more (k INT PRIMARY KEY)", "owner"),
        ("DROP TABLE gold.more", "owner"),
        ("CREATE SCHEMA silver", "owner"),
        ("DROP SCHEMA silver", "owner"),
        ("CREATE TOKEN other", "owner"),
        ("GRANT READER ON SCHEMA hr TO other", "owner"),
        ("REVOKE READER ON SCHEMA hr FROM other", "owner"),
        ("DROP TOKEN other", "owner"),
        ("SHOW TOKENS", "owner"),
        ("SHOW SECRETS", "owner"),
        ("SHOW CONNECTIONS", "owner"),
        ("REPAIR", "owner"),
        pytest.param("RECONCILE ALL", "owner", marks=pytest.mark.long),
        ("RESUME SOURCE items", "owner"),
        ("PAUSE SINK s", "owner"),
        ("RESUME SINK s", "owner"),
        ("RESET SINK s", "owner"),
        ("PAUSE FILL OF items", "owner"),
        ("RESUME FILL OF items", "owner"),
        ("ALTER SINK s SET (batch_rows = 1)", "owner"),
        ("RECONCILE SINK s CHECK", "owner"),
        ("CREATE SINK s FROM items INTO CONNECTION c", "owner"),
        ("DROP FUNCTION f", "owner"),
        ("SHOW GRANTS FOR owner", "owner"),
        ("SELECT * FROM items", "reader"),
        ("SHOW TABLES", "reader"),
        ("FLUSH", "reader"),
        ("SET consistency = 'latest'", "reader"),
    ],
)
def test_a_statement_needs_its_role(who: dict[str, Client], sql: str, least: str):
    order = ["reader", "writer", "owner"]
    for name in order:
        answer = who[name].sql(sql)
        enough = order.index(name) >= order.index(least)
        assert (answer.status == 403) is not enough, (name, answer.body)
        if not enough:
            assert f"role {least} in" in answer.error["primary"]


def test_the_owner_of_a_schema_changes_nothing_outside(who: dict[str, Client]):
    keeper = who["keeper"]
    made = "CREATE MATERIALIZED VIEW gold.mine AS SELECT k FROM items"
    assert keeper.sql(made).status == 200
    for sql in (
        "CREATE VIEW mine AS SELECT k FROM gold.notes",
        "INSERT INTO items VALUES (2, 'two')",
        "DROP TABLE items CASCADE",
        "CREATE STREAM gold.s (k INT) WITH (connector = 'kafka', topic = 't', brokers = 'h:9')",
        "CREATE SINK gold.s FROM gold.mine WITH (connector = 'file', path = 'x')",
        "CREATE SINK gold.s INTO items FROM gold.mine",
        "PRINT 'secret_events'",
        "EXPLAIN CREATE MATERIALIZED VIEW hr.x AS SELECT k FROM items",
    ):
        answer = keeper.sql(sql)
        assert answer.status == 403 or "PRINT" in sql, (sql, answer.body)
        assert answer.status != 200
    assert keeper.sql("DROP VIEW gold.mine").status == 200


def test_why_a_view_stopped_is_told_to_those_who_may_read_its_inputs(who: dict[str, Client]):
    """What its query failed on is a value of an input."""
    owner, golden = who["owner"], who["golden"]
    owner.sql(
        "CREATE TABLE hr.codes (k INT PRIMARY KEY, code STRING);"
        "CREATE MATERIALIZED VIEW gold.codes AS SELECT k, CAST(code AS INT) AS code FROM hr.codes"
    )
    try:
        owner.sql("INSERT INTO hr.codes VALUES (1, 'confidential'); FLUSH")
        shown = owner.rows("SHOW DIRTY FOR gold.codes")
        assert "confidential" in shown[0][-1]
        row = '{"k":1,"code":"confidential"}'
        assert f'It fails with the row {row} of table "hr.codes".' in shown[0][-1]
        assert owner.rows("SHOW ERRORS FOR gold.codes")[0][:2] == ["hr.codes", row]
        assert golden.sql("SHOW ERRORS FOR gold.codes").status == 403
        ((view, cause, *_, state, detail),) = golden.rows("SHOW DIRTY FOR gold.codes")
        assert (view, cause, state, detail) == ("gold.codes", "stopped", "open", None)
        for sql in ("SELECT * FROM gold.codes", "SELECT * FROM information_schema.dirty"):
            assert b"confidential" not in golden.sql(sql).body, sql
        assert golden.sql("SELECT * FROM gold.codes").status == 503
        assert b"confidential" in owner.sql("SELECT * FROM gold.codes").body
    finally:
        owner.sql("DROP MATERIALIZED VIEW gold.codes; DROP TABLE hr.codes")


def test_listings_have_only_what_may_be_read(who: dict[str, Client]):
    golden = who["golden"]
    for listing in (
        "SHOW TABLES", "SHOW STREAMS", "SHOW VIEWS", "SHOW SOURCES", "SHOW SCHEMAS",
        "SHOW FRESHNESS", "SHOW DIRTY", "SHOW REJECTS", "SHOW JOBS", "SHOW FUNCTIONS",
        "SHOW GRANTS", "SHOW EPOCHS", "SELECT * FROM information_schema.schemata",
        *(
            f"SELECT * FROM information_schema.{name}"
            for name in (
                "tables", "columns", "views", "streams", "dependencies", "arrangements",
                "freshness", "dirty", "sinks", "rejects", "epochs",
            )
        ),
    ):  # fmt: skip
        answer = golden.sql(listing)
        assert answer.status == 200, (listing, answer.body)
        shown = answer.body.lower()
        for hidden in (b"salar", b"items", b'"hr', b"secret_events", b"default"):
            assert hidden not in shown, (listing, answer.body)
    assert [row[0] for row in golden.rows("SHOW TABLES")] == [
        "gold.kept",
        "gold.notes",
        "gold.open",
        "gold.pay",
        "gold.plain",
        "gold.plainer",
        "gold.safe",
    ]
    catalog = golden.get("/v1/catalog").json
    assert catalog["client"] == {"name": "golden", "role": None}
    assert {each["role"] for each in catalog["relations"]} == {"reader"}
    assert catalog["server"] is None
    assert b"salar" not in golden.get("/v1/catalog").body
    assert b"salar" in who["reader"].get("/v1/catalog").body
    assert b"salar" not in golden.get("/v1/catalog/gold.pay").body
    assert b"salar" in who["reader"].get("/v1/catalog/gold.pay").body
    assert b"salar" not in golden.get("/v1/lineage/gold.pay").body
    assert b"salar" in who["reader"].get("/v1/lineage/gold.pay").body
    assert golden.sql("SHOW LINEAGE OF gold.pay").status == 403
    assert golden.sql("SHOW LINEAGE FORMAT OPENLINEAGE").status == 403
    assert golden.get("/v1/history", relation="hr.salaries").json.keys().isdisjoint({"relation"})
    assert b"salar" not in golden.get("/v1/epochs", limit=1000).body
    assert b"salar" in who["reader"].get("/v1/epochs", limit=1000).body
    status = b"".join(islice(golden.connected_to("/v1/status"), 2))
    assert b"gold.pay" in status
    assert b"salar" not in status
    assert golden.rows("SHOW GRANTS") == [["golden", "reader", "schema", "gold"]]
    assert [row[0] for row in who["reader"].rows("SHOW SCHEMAS")] == [
        "gold",
        "hr",
        "information_schema",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM gold.salaries",
        "SELECT * FROM gold.itemss",
        "DESCRIBE gold.salaries",
        "DROP TABLE gold.salarie",
        "SELECT salary FROM gold.plain",
        "SELECT e.k FROM gold.pay e JOIN hr.polic FOR SYSTEM_TIME AS OF now() p ON e.k = p.k",
        "SELECT * FROM gold.pay FOR SYSTEM_TIME AS OF salary",
        "SHOW TABLES FROM hrr",
    ],
)
def test_no_error_names_what_may_not_be_read(who: dict[str, Client], sql: str):
    for name in ("golden", "keeper"):
        answer = who[name].sql(sql)
        assert answer.status in (400, 403, 422), answer.body
        assert b"hr.salaries" not in answer.body
        assert b'mean \\"hr' not in answer.body


def test_a_session_is_of_the_token_that_opened_it(who: dict[str, Client]):
    opened = who["owner"].post("/v1/sessions", {}).json["session"]
    assert who["owner"].sql("SELECT * FROM items", session=opened).status == 200
    for name in ("reader", "nobody"):
        assert who[name].sql("SELECT 1 AS one", session=opened).status == 410
        assert who[name].ask("DELETE", f"/v1/sessions/{opened}").status == 410
        assert who[name].ask("POST", f"/v1/sessions/{opened}/cancel").status == 410
    assert who["owner"].ask("DELETE", f"/v1/sessions/{opened}").status == 200


def test_what_is_taken_back_ends_at_once(place: tuple[Served, dict[str, Client]]):
    running, who = place
    secret = who["owner"].rows("CREATE TOKEN guest VALID FOR INTERVAL '1' DAY")[0][1]
    guest = running.client.having(secret)
    assert guest.get("/v1/views/gold.pay").status == 403
    who["owner"].sql("GRANT READER ON SCHEMA gold TO guest")
    opened = guest.post("/v1/sessions", {}).json["session"]
    with Events(guest, view="gold.pay") as events:
        arriving = iter(events)
        assert next(arriving).kind == "snapshot"
        who["owner"].sql("DROP TOKEN guest")
        last = list(arriving)[-1]
        assert last.kind == "error"
        assert last.data["error"]["code"] == "forbidden"
    assert guest.get("/v1/views/gold.pay").status == 401
    secret = who["owner"].rows("CREATE TOKEN guest")[0][1]
    again = running.client.having(secret)
    assert again.sql("SELECT 1 AS one", session=opened).status == 410
    who["owner"].sql("DROP TOKEN guest")


# -- browsers ------------------------------------------------------------------------------------


def test_a_browser_exchanges_its_token_for_a_cookie(place: tuple[Served, dict[str, Client]]):
    running, who = place
    secret = who["golden"].headers["Authorization"].removeprefix("Bearer ")
    own = Client(running.client.port, {"Origin": running.server.url})
    assert running.client.post("/v1/login", {"token": secret}).status == 403  # no page has sent it
    assert own.post("/v1/login", {"token": "hrt_wrong"}).status == 401
    found = own.post("/v1/login", {"token": secret})
    assert found.status == 200
    cookie = found.headers["set-cookie"]
    assert secret not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie  # which a browser would not send over HTTP
    held = cookie.partition(";")[0]
    page = Client(running.client.port, {"Cookie": held, "Sec-Fetch-Site": "same-origin"})
    assert page.get("/v1/views/gold.pay").status == 200
    assert page.get("/v1/views/hr.salaries").status == 403
    with Events(page, view="gold.pay") as events:
        assert next(iter(events)).kind == "snapshot"
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        other = Client(running.client.port, {"Cookie": held, **headers})
        assert other.get("/v1/views/gold.pay").status == 403, headers
    assert page.ask("POST", "/v1/logout").status == 200
    assert page.get("/v1/views/gold.pay").status == 401


def test_a_remote_database_has_the_rights_of_its_token(place: tuple[Served, dict[str, Client]]):
    served_, who = place
    url = served_.server.url
    secret = who["golden"].headers["Authorization"].removeprefix("Bearer ")
    with headrace.connect(url, token=secret) as golden:
        assert golden.sql("SELECT k FROM gold.pay").fetchall() == [(1,)]
        with golden.subscribe("gold.pay") as followed:
            assert len(followed.poll(30) or []) == 1
        assert ("table", "hr.salaries") not in golden.relations()
        for refused in (
            lambda: golden.sql("SELECT k FROM items"),
            lambda: golden.subscribe("hr.salaries"),
            lambda: golden.insert("gold.notes", [(1, "x")]),
            lambda: golden.sql("DROP VIEW gold.plain"),
        ):
            with pytest.raises(headrace.HeadraceError) as raised:
                refused()
            assert raised.value.code in (headrace.Code.FORBIDDEN, headrace.Code.INVALID)
    for token in (None, "nonsense"):
        with pytest.raises(headrace.HeadraceError) as raised:
            headrace.connect(url, token=token)
        assert raised.value.code is headrace.Code.FORBIDDEN
