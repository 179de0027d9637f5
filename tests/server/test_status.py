"""What the console shows is there for programs, too: the catalog, the status, what runs."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from headrace.interfaces.server.pages import Pages, media_type
from headrace.lifecycle.states.access import OWNER
from served import Events, served
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from served import Client, Served


@pytest.fixture(scope="module", autouse=True)
def relations(server: Served):
    server.database.sql("""
        CREATE SCHEMA shown;
        CREATE TABLE shown.orders (id INT, user STRING, amount DECIMAL(10,2), PRIMARY KEY (id));
        CREATE STREAM shown.clicks (user STRING, at TIMESTAMP);
        CREATE VIEW shown.paid AS SELECT * FROM shown.orders WHERE amount > 0;
        CREATE MATERIALIZED VIEW shown.totals AS
        SELECT user, sum(amount) AS total FROM shown.paid GROUP BY user;
        CREATE TABLE shown.copy (user STRING, total DECIMAL(20,2), PRIMARY KEY (user));
        CREATE SINK shown_sink INTO shown.copy FROM shown.totals
    """)


@contextmanager
def statuses(client: Client) -> Iterator[Iterator[Any]]:
    connection = client.connected()
    connection.request("GET", "/v1/status")
    answer = connection.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")

    def moments() -> Iterator[Any]:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    try:
        yield moments()
    finally:
        answer.close()
        connection.close()


def test_the_catalog_has_kinds_columns_inputs_state_and_size(client: Client):
    client.sql("INSERT INTO shown.orders VALUES (1, 'ann', 30), (2, 'bob', 5)")
    assert client.rows("SELECT count(*) FROM shown.totals") == [[2]]
    found = client.get("/v1/catalog").json
    assert {"SELECT", "EMIT"} <= set(found["keywords"])
    by_name = {each["name"]: each for each in found["relations"]}
    totals = by_name["shown.totals"]
    assert (totals["kind"], totals["state"], totals["key"]) == (
        "materialized view",
        "running",
        ["user"],
    )
    assert totals["inputs"] == ["shown.orders", "shown.paid"]
    assert totals["columns"][1] == {"name": "total", "type": "decimal(20,2)", "nullable": True}
    assert totals["stored"]["rows"] == 2
    assert totals["stored"]["entries"] >= 2
    assert totals["stored"]["bytes"] > 0
    assert totals["freshness"]["pending"] == totals["freshness"]["seconds"] == 0
    assert totals["freshness"]["inputs"] == [
        {"relation": "shown.orders", "position": 2, "end": 2, "watermark": None}
    ]
    assert by_name["shown.orders"]["source"]["end"] == 2
    assert by_name["shown.clicks"]["freshness"] is None
    (sink,) = [e for e in found["relations"] if e["kind"] == "sink" and e["target"] == "shown.copy"]
    assert (sink["inputs"], sink["state"]) == (["shown.totals"], "running")
    assert not any(name.startswith("__") for name in by_name)


def test_answers_are_as_the_description_says(client: Client):
    described = client.get("/openapi.json").json
    for path in (
        "/v1/catalog",
        "/v1/catalog/{name}",
        "/v1/epochs",
        "/v1/history",
        "/v1/lineage/{name}",
        "/v1/statements",
        "/v1/views/{name}/changes",
    ):
        answers = described["paths"][path]["get"]["responses"]["200"]["content"]
        schema = {**answers["application/json"]["schema"], "components": described["components"]}
        assert schema["$ref"] != "#/components/schemas/Object"
        relations = ("shown.totals", "shown.orders", "shown.clicks", "shown.paid", "shown_sink")
        stored = relations[:2] if path.endswith("changes") else relations
        for name in stored if "{name}" in path else ("",):
            found = client.get(path.replace("{name}", name)).json
            Draft202012Validator(schema).validate(found)
            with pytest.raises(ValidationError):
                Draft202012Validator(schema).validate({**found, next(iter(found)): {}})


def test_a_relation_has_its_statement_and_its_circuit_with_what_is_stored(client: Client):
    found = client.get("/v1/catalog/shown.totals").json
    assert found["sql"].startswith("CREATE MATERIALIZED VIEW shown.totals AS")
    assert found["circuit"][0]["title"] == "Integrate: the view's rows"
    (stored,) = found["circuit"][0]["arrangements"]
    assert stored["key"] == "user"
    assert stored["rows"] >= 1
    assert stored["bytes"] > 0
    assert found["circuit"][0]["work"]["rows_out"] >= 1
    assert [node["number"] for node in found["circuit"]] == list(range(len(found["circuit"])))
    aggregate = found["circuit"][1]
    assert aggregate["title"].startswith("GroupAggregate by (orders.user)")
    assert aggregate["depth"] == 1
    assert "one lookup" in aggregate["cost"]
    assert client.get("/v1/catalog/shown.orders").json["circuit"] is None
    missing = client.get("/v1/catalog/shown.total")
    assert (missing.status, missing.error["hint"]) == (404, 'Did you mean "shown.totals"?')


def test_the_catalog_has_what_waits_what_it_costs_and_who_asks(client: Client):
    client.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW shown.totals WITH (auto_swap = false) AS"
        " SELECT user, sum(amount) AS total, count(*) AS orders FROM shown.paid GROUP BY user"
    )
    client.sql("INSERT INTO shown.orders VALUES (90, 'ann', 1); FLUSH")
    found = client.get("/v1/catalog").json
    assert found["client"] == {"name": None, "role": "owner"}
    assert {each["role"] for each in found["relations"]} == {"owner"}
    (candidate,) = [each for each in found["candidates"] if each["name"] == "shown.totals"]
    assert (candidate["state"], candidate["same_columns"]) == ("waits", False)
    assert candidate["role"] == "owner"
    shares = {(each["name"], each["candidate"]): each["share"] for each in found["costs"]}
    assert shares["shown.totals", False] > 0
    assert shares["shown.totals", True] > 0
    assert 0 < sum(shares.values()) <= 1 + 1e-9
    used = found["server"]
    assert used["version"]
    assert used["disk"] > 0
    assert used["memory"] is None or used["memory"] > 10_000_000
    client.sql("DROP CANDIDATE OF VIEW shown.totals")
    found = client.get("/v1/catalog").json
    assert "shown.totals" not in {each["name"] for each in found["candidates"]}


def test_the_history_reaches_over_a_restart_of_the_server(server: Served, client: Client):
    client.sql("INSERT INTO shown.orders VALUES (91, 'ann', 1)")
    for seconds in (60, 10_800, 86_400):
        found = client.get("/v1/history", seconds=seconds, relation="shown.orders").json
        lengths = {len(values) for values in (*found["relation"].values(), found["at"])}
        assert len(lengths) == 1
    status = server.server.service.status
    until(lambda: status.moments and status.moments[-1].sources["shown.orders"] >= 3)
    status.history.close()
    with served(server.database) as other:
        before = other.client.get("/v1/history", seconds=86_400).json
        assert before["step"] == 600
        assert sum(before["epochs"]) >= 1


@pytest.mark.long
def test_the_status_comes_every_second_and_is_kept(client: Client):
    with statuses(client) as moments:
        first = next(moments)
        client.sql("INSERT INTO shown.orders VALUES (3, 'cid', 7)")
        for moment in moments:
            if moment["sources"]["shown.orders"] > first["sources"]["shown.orders"]:
                break
        assert moment["at"] > first["at"]
        assert moment["rows"] > 0
        assert moment["error"] is None
        assert set(moment["views"]) >= {"shown.totals"}
        for moment in moments:
            if moment["epoch"] > first["epoch"] and moment["views"]["shown.totals"] == [0, 0.0]:
                break
    history = client.get("/v1/history", relation="shown.orders").json
    assert history["relation"]["end"][-1] >= 3
    assert len(history["at"]) == len(history["epoch"]) == len(history["relation"]["pending"])
    assert history["at"] == sorted(history["at"])
    assert any(seconds is not None for seconds in history["epoch_seconds"])
    assert sum(history["narrow"]) >= 1
    (epoch, *_) = client.get("/v1/epochs", limit=1).json["epochs"]
    assert epoch["width"] == "narrow"
    assert epoch["spent"]["commit"] > 0
    assert len(client.get("/v1/history", seconds=0).json["at"]) == 0


def test_show_freshness_says_how_far_each_log_was_read(client: Client):
    found = client.sql("SHOW FRESHNESS").json
    names = [column["name"] for column in found["columns"]]
    (row,) = [row for row in found["rows"] if row[0] == "shown.totals"]
    fresh = dict(zip(names, row, strict=True))
    end = client.get("/v1/catalog/shown.orders").json["source"]["end"]
    assert fresh["inputs"] == f"shown.orders {end} of {end}"
    assert (fresh["changes_behind"], fresh["seconds_behind"], fresh["state"]) == (0, 0.0, "running")
    sql = "SELECT seconds_behind, dirty_since FROM information_schema.freshness WHERE table_schema = 'shown'"
    assert client.rows(sql) == [[0.0, None]]


def test_a_stopped_view_is_behind_since_it_stopped(client: Client):
    client.sql("""
        CREATE TABLE shown.prices (id INT, price INT, PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW shown.halves AS SELECT id, 10 DIV price AS half FROM shown.prices;
        CREATE MATERIALIZED VIEW shown.over AS SELECT sum(half) AS s FROM shown.halves
    """)
    client.sql("INSERT INTO shown.prices VALUES (1, 0); FLUSH")
    try:
        found = client.get("/v1/catalog").json["relations"]
        by_name = {each["name"]: each for each in found}
        for name in ("shown.halves", "shown.over"):
            fresh = by_name[name]["freshness"]
            assert by_name[name]["state"] == "stopped"
            assert fresh["pending"] is None
            assert fresh["dirty_since"] <= time.time()
            assert fresh["seconds"] > 0
        assert by_name["shown.totals"]["freshness"]["dirty_since"] is None
        assert "division by zero" in by_name["shown.halves"]["freshness"]["error"]
        assert "shown.halves" in by_name["shown.over"]["freshness"]["error"]
        assert by_name["shown.totals"]["freshness"]["error"] is None
        metrics = client.get("/metrics").body.decode()
        assert 'headrace_view_stopped{view="shown.halves"} 1.0' in metrics
        assert 'headrace_view_pending_changes{view="shown.halves"}' not in metrics
        error = client.get("/v1/views/shown.over").error
        assert error["detail"].startswith("division by zero. ")
        assert "hint:" not in error["detail"]
    finally:
        client.sql("DROP TABLE shown.prices CASCADE")


def test_statements_that_run_are_listed_and_cancelled_and_secrets_are_masked(
    server: Served, client: Client
):
    active, cancelled = server.server.service.active, []

    class Session:
        def cancel(self) -> bool:
            cancelled.append(True)
            return True

    with active.running(
        Session(), "CREATE STREAM s WITH (password = 'hunter2')", OWNER
    ) as statement:
        (found,) = [
            each
            for each in client.get("/v1/statements").json["statements"]
            if each["id"] == statement.id
        ]
        assert "hunter2" not in found["sql"]
        assert found["sql"].startswith("CREATE STREAM s")
        assert found["began_at"] <= time.time()
        answer = client.post(f"/v1/statements/{statement.id}/cancel", None)
        assert (answer.json, cancelled) == ({"cancelled": True}, [True])
    gone = client.post(f"/v1/statements/{statement.id}/cancel", None)
    assert (gone.status, gone.error["primary"]) == (404, "this statement is not running")


def test_pages_are_served_with_a_strict_policy_and_a_tag(client: Client):
    page = client.get("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    script = client.get("/console/app.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    again = client.ask("GET", "/console/app.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert client.get("/pages/index.html").error["hint"].startswith("Start the server with")


def test_only_files_below_the_directory_are_served(tmp_path: Path):
    directory = tmp_path / "pages"
    (directory / ".git").mkdir(parents=True)
    (directory / "sub").mkdir()
    (directory / "index.html").write_text("home")
    (directory / "sub" / "index.html").write_text("sub")
    (directory / ".git" / "config").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (directory / "link").symlink_to(tmp_path / "secret")
    pages = Pages(directory)
    assert pages._read("") == b"home"
    assert pages._read("sub/") == b"sub"
    for path in (
        "../secret",
        "sub/../../secret",
        "/etc/passwd",
        ".git/config",
        "link",
        "sub",
        "sub//index.html",
        "..\\secret",
        "index.html\0",
        "missing",
    ):
        assert pages._read(path) is None, path
    assert [media_type(path) for path in ("", "x.css", "x.js", "x.unknown")] == [
        "text/html",
        "text/css",
        "text/javascript",
        "application/octet-stream",
    ]


@pytest.mark.long
def test_a_look_that_fails_is_logged_once_and_looking_goes_on(
    server: Served,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    status, fails = server.server.service.status, [3]
    found = type(status)._found

    def failing(self: Any) -> Any:
        if fails[0]:
            fails[0] -= 1
            raise OSError("no")
        return found(self)

    with statuses(client) as moments:
        next(moments)
        monkeypatch.setattr(type(status), "_found", failing)
        for _ in moments:
            if not fails[0]:
                break
    assert [record.message for record in caplog.records].count("the status cannot be read") == 1


def test_the_latest_changes_are_read_from_history_and_followed_from_there(client: Client):
    client.sql("CREATE TABLE shown.stock (id INT, n INT, PRIMARY KEY (id))")
    for n in range(4):
        client.sql(f"INSERT INTO shown.stock VALUES (1, {n}), (2, 0)")
        client.sql("FLUSH")
    found = client.get("/v1/views/shown.stock/changes").json
    lines = [
        (each["op"], each["row"]["n"]) for epoch in found["epochs"] for each in epoch["changes"]
    ]
    ones = [line for line in lines if line not in [("+I", 0), ("-U", 0), ("+U", 0)]]
    assert ones == [("+U", 1), ("-U", 1), ("+U", 2), ("-U", 2), ("+U", 3)]
    assert found["complete"]
    epochs = [(each["epoch"], each["committed_at"]) for each in found["epochs"]]
    assert epochs == sorted(epochs)
    last = client.ask("GET", "/v1/views/shown.stock/changes", limit=1).json
    assert (last["complete"], len(last["epochs"])) == (False, 1)
    with Events(client, view="shown.stock", after=found["token"]) as events:
        client.sql("UPDATE shown.stock SET n = 9 WHERE id = 1")
        changed = next(each for each in events if each.kind == "changes")
    assert [each["row"]["n"] for each in changed.data["changes"]] == [3, 9]
    refused = client.get("/v1/views/shown.clicks/changes")
    assert (refused.status, refused.error["primary"]) == (
        422,
        'stream "shown.clicks" keeps no changes',
    )


def test_a_script_is_split_as_it_would_be_run(client: Client):
    sql = "SELECT 'é;'; -- one;\n INSERT INTO t VALUES (1);;"
    found = client.post("/v1/script", {"sql": sql}).json["statements"]
    assert [each["sql"] for each in found] == ["SELECT 'é;'", "INSERT INTO t VALUES (1)"]
    assert all(sql[each["start"] : each["end"]] == each["sql"] for each in found)


def test_statements_that_ended_are_kept_with_their_time_and_outcome(client: Client):
    client.sql("SELECT 4711 AS kept")
    client.sql("SELECT nothing FROM shown.orders")
    client.sql("SELECT nothing, 'http://ann:hunter2@host' FROM shown.orders")
    secret, failed, fine = client.get("/v1/statements").json["ended"][:3]
    assert secret["sql"] == "SELECT nothing, 'http://***********@host' FROM shown.orders"
    assert (fine["sql"], fine["outcome"], fine["error"]) == (
        "SELECT 4711 AS kept",
        "finished",
        None,
    )
    assert 0 < fine["seconds"] < 60
    assert (failed["outcome"], failed["error"]) == ("invalid", 'column "nothing" does not exist')
