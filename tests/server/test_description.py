"""The description of the server is true; its metrics are those of what happened."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import openapi_spec_validator
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from headrace.interfaces.server.routes import ROUTES
from headrace.tools.cli.command import headrace
from served import Events

if TYPE_CHECKING:
    from served import Client

DOCS = Path(__file__).parents[2] / "docs" / "server.md"


def test_the_description_is_valid_and_has_every_route(client: Client):
    described = client.get("/openapi.json").json
    openapi_spec_validator.validate(described)
    paths = {(m.upper(), path) for path, each in described["paths"].items() for m in each}
    assert paths == {(route.method, route.path) for route in ROUTES if not route.is_page}
    assert all(each["summary"] for path in described["paths"].values() for each in path.values())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_there_and_refuses_what_is_not_described(client: Client, route):
    path = re.sub(r"{.*?}", "nothing", route.path)
    found = client.ask(route.method, path, nonsense="1")
    assert (found.status, found.error["primary"]) == (
        400,
        'query parameter "nonsense" does not exist',
    )
    for query in route.query:
        values = ["1", "2"] if query.repeated else "1"
        answer = client.ask(route.method, path, **{query.name: values})
        assert b"does not exist" not in answer.body or b"parameter" not in answer.body


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_and_parameter_is_documented(route):
    text = DOCS.read_text()
    assert route.path.split("{")[0] in text
    for query in route.query:
        assert re.search(rf"`{query.name}`|[?&]{query.name}=", text), query.name


def test_metrics_count_what_happened(client: Client):
    def metrics() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }

    def requests(of: dict, outcome: str) -> float:
        labels = (("operation", "run_sql"), ("outcome", outcome))
        return of.get(("headrace_requests_total", labels), 0)

    client.sql("CREATE TABLE counted (x INT); CREATE MATERIALIZED VIEW v AS SELECT x FROM counted")
    before = metrics()
    client.sql("INSERT INTO counted VALUES (1), (2), (3)")
    client.sql("SELECT * FROM v")
    client.sql("SELECT nothing FROM v")
    session = client.post("/v1/sessions", None).json["session"]
    with Events(client, view="v") as events:
        next(iter(events))
        after = metrics()
    assert requests(after, "ok") - requests(before, "ok") == 2
    assert requests(after, "invalid") - requests(before, "invalid") == 1
    assert after["headrace_epochs_total", ()] > before["headrace_epochs_total", ()]
    name = "headrace_epoch_seconds_count"
    assert after[name, ()] - before[name, ()] >= 1
    narrow = "headrace_epochs_by_width_total", (("width", "narrow"),)
    assert after[narrow] - before.get(narrow, 0) >= 1
    commits = "headrace_epoch_spent_seconds_total", (("activity", "commit"),)
    assert after[commits] > before.get(commits, 0)
    assert after["headrace_log_end", (("relation", "counted"),)] == 3
    assert after["headrace_view_pending_changes", (("view", "v"),)] == 0
    assert after["headrace_view_seconds_behind", (("view", "v"),)] == 0
    assert after["headrace_view_stopped", (("view", "v"),)] == 0
    assert after["headrace_subscribers", ()] == 1
    assert after["headrace_sessions", ()] >= 1
    assert after["headrace_dead_bytes", ()] >= 0
    assert after["headrace_request_seconds_count", (("operation", "run_sql"),)] >= 3
    client.ask("DELETE", f"/v1/sessions/{session}")
    assert metrics()["headrace_subscribers", ()] == 0


def test_every_metric_of_the_dashboard_exists(client: Client):
    families = text_string_to_metric_families(client.get("/metrics").body.decode())
    known = {family.name for family in families}
    known |= {sample for name in known for sample in (f"{name}_total", f"{name}_bucket")}
    found = json.loads(CliRunner().invoke(headrace, ["dashboard"]).output)
    queries = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    for query in queries:
        named = re.findall(r"\bheadrace_\w+", query)
        assert named, query
        assert set(named) <= known, query
    places = [tuple(panel["gridPos"].values()) for panel in found["panels"]]
    assert len(set(places)) == len(places)
