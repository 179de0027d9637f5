"""SHOW LINEAGE in a database, and its events of OpenLineage, which are valid by the specification."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.tools.cli.command import main
from openlineage_specification import require_valid

pytestmark = pytest.mark.spark

SETUP = """
CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount INT, note STRING);
CREATE TABLE copied (customer STRING, total BIGINT);
CREATE VIEW large AS SELECT id, customer, amount FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW spent AS SELECT customer, sum(amount) AS total FROM large GROUP BY customer;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM spent;
CREATE SINK copies INTO copied FROM spent;
CREATE SINK files FROM spent WITH (connector = 'file', path = 'spent');
CREATE MATERIALIZED VIEW beyond AS SELECT total * 2 AS twice FROM copied;
"""


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lineage")
    events = directory / "events.json"
    with headrace.connect(
        directory / "data", spark=spark, continuous=False, openlineage=str(events)
    ) as db:
        db.sql("CREATE TABLE former (a INT)")
        db.sql(SETUP)
        db.sql("INSERT INTO orders VALUES (1, 'ann', 30, 'x'), (2, 'bob', 5, 'y')")
        db.sql("REFRESH")
        yield db


def rows(database, statement):
    return ["|".join(str(value) for value in row[:7]) for row in database.sql(statement).fetchall()]


def test_upstream_goes_through_plain_views_to_tables(database):
    assert rows(database, "SHOW LINEAGE OF spent.total") == [
        "spent|total|large|amount|direct|aggregation|1",
        "spent|total|orders|amount|direct|aggregation|2",
        "spent|*|large|customer|indirect|group_by|1",
        "spent|*|orders|amount|indirect|filter|2",
        "spent|*|orders|customer|indirect|group_by|2",
    ]
    assert rows(database, "SHOW LINEAGE OF counted") == [
        "counted|*|large|customer|indirect|group_by|2",
        "counted|*|orders|amount|indirect|filter|3",
        "counted|*|orders|customer|indirect|group_by|3",
        "counted|*|spent|*|indirect|rows|1",
    ]


def test_downstream_goes_through_sinks_into_tables_and_to_other_systems(database):
    found = rows(database, "SHOW LINEAGE OF orders.amount DOWNSTREAM")
    assert "large|amount|orders|amount|direct|identity|1" in found
    assert "counted|*|orders|amount|indirect|filter|3" in found
    assert "copied|total|orders|amount|direct|aggregation|4" in found
    assert "beyond|twice|orders|amount|direct|aggregation|5" in found
    assert rows(database, "SHOW LINEAGE OF orders.note DOWNSTREAM") == []
    outside = {
        row[0]: row[7] for row in database.sql("SHOW LINEAGE OF spent DOWNSTREAM").fetchall()
    }
    assert outside["files"].startswith("file:/")
    assert outside["files"].endswith("/data/sinks/spent")
    assert outside["counted"] is None


def test_a_name_that_is_no_relation_or_column_is_refused(database):
    for statement, primary in {
        "SHOW LINEAGE OF nothing": 'table, stream or view "nothing" does not exist',
        "SHOW LINEAGE OF orders.amuont": 'column "amuont" does not exist in table "orders"',
        "SHOW LINEAGE OF spent.total FORMAT OPENLINEAGE": '"spent.total" is a column',
    }.items():
        with pytest.raises(HeadraceError) as refused:
            database.sql(statement)
        assert (refused.value.code, refused.value.primary) == (Code.INVALID, primary)


def column(event, name):
    (output,) = event["outputs"]
    fields = output["facets"]["columnLineage"]["fields"][name]["inputFields"]
    return {
        (each["name"], each["field"], how["type"], how["subtype"])
        for each in fields
        for how in each["transformations"]
    }


def test_events_are_valid_and_have_the_lineage_of_columns(database):
    shown = database.sql("SHOW LINEAGE FORMAT OPENLINEAGE").fetchall()
    events = {event["job"]["name"]: event for (text,) in shown for event in [json.loads(text)]}
    for event in events.values():
        require_valid(event)
    assert events.keys() == {"large", "spent", "counted", "beyond", "copies", "files"}
    assert column(events["spent"], "total") == {("large", "amount", "DIRECT", "AGGREGATION")}
    (output,) = events["spent"]["outputs"]
    rowwise = output["facets"]["columnLineage"]["dataset"]
    assert [(each["field"], each["transformations"][0]["subtype"]) for each in rowwise] == [
        ("customer", "GROUP_BY")
    ]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert column(events["copies"], "total") == {("spent", "total", "DIRECT", "IDENTITY")}
    (file,) = events["files"]["outputs"]
    assert (file["namespace"], file["name"].rpartition("/")[2]) == ("file", "spent")
    assert "inputs" not in events["counted"] or events["counted"]["inputs"][0]["name"] == "spent"


class Kept:
    """A database that a command opens and leaves open."""

    def __init__(self, database):
        self.database = database

    def __getattr__(self, name):
        return getattr(self.database, name)

    def close(self):
        pass


def test_the_command_lists_lineage_and_sends_events_to_a_server(database, capsys):
    def run(*arguments):
        assert main(["--data", str(database.directory), "lineage", *arguments], connect) == 0
        return capsys.readouterr().out.splitlines()

    def connect(*_given, **_settings):
        return Kept(database)

    header, *lines = run("spent.total", "--format", "csv")
    assert header.startswith("relation,column,input,input_column,type,influence,distance")
    assert "spent,total,orders,amount,direct,aggregation,2," in lines
    printed = run("--openlineage", "spent")
    assert [json.loads(line)["job"]["name"] for line in printed] == ["spent"]
    received = []

    class Catalogue(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_given):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Catalogue) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run("--openlineage", "--to", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert [path for path, _ in received] == ["/api/v1/lineage"] * 6
    for _, event in received:
        require_valid(event)


def test_what_happens_to_views_is_sent_in_order(database):
    database.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    database.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id + 1 AS id FROM orders")
    database.sql(
        "ALTER MATERIALIZED VIEW v WITH (auto_swap = false) AS SELECT id, amount FROM orders"
    )
    database.sql("SWAP VIEW v; DROP CANDIDATE OF v; DROP MATERIALIZED VIEW v")
    with pytest.raises(HeadraceError):
        database.sql("CREATE MATERIALIZED VIEW bad AS SELECT 1 / (id - 1) AS a FROM orders")
    openlineage = database.parts.openlineage
    openlineage.close()
    sent = [json.loads(line) for line in Path(openlineage.address).read_text().splitlines()]
    for event in sent:
        require_valid(event)
    assert openlineage.sending.dropped == 0
    assert openlineage.sending.sent == len(sent)

    def states(job):
        return [e["eventType"] for e in sent if e["job"]["name"] == job]

    assert states("v.fill") == ["START", "COMPLETE"]
    assert states("v.rebuild") == ["START", "COMPLETE"]
    assert states("v") == ["START", "RUNNING", "COMPLETE"] * 3
    (columns, *_) = [
        [field["name"] for field in e["outputs"][0]["facets"]["schema"]["fields"]]
        for e in reversed(sent)
        if e["job"]["name"] == "v" and e["eventType"] == "RUNNING"
    ]
    assert columns == ["id", "amount"]
    assert states("bad.fill") == states("bad") == ["START", "FAIL"]
    (failed,) = [e for e in sent if e["job"]["name"] == "bad.fill" and e["eventType"] == "FAIL"]
    assert "error" in failed["run"]["facets"]["errorMessage"]["message"]
    own = {e["run"]["runId"] for e in sent if e["job"]["name"] == "v"}
    parents = {
        e["run"]["facets"]["parent"]["run"]["runId"]
        for e in sent
        if e["job"]["name"].startswith("v.")
    }
    assert len(own) == 3
    assert parents < own
    ends = Counter(e["eventType"] for e in sent if e.get("eventType") in ("COMPLETE", "FAIL"))
    assert ends["FAIL"] == 2
