"""A Grafana dashboard, generated from this server's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_WIDTH: Final = 24
_HEIGHT: Final = 8
_RATE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its title, its Grafana unit, and its queries with their legends."""

    title: str
    meaning: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _quantile(percent: int, rates: str) -> str:
    return f"histogram_quantile({percent / 100}, {rates})"


CHARTS: Final = (
    Chart(
        "Changes in",
        "Changes appended to the log of each stream and table.",
        "ops",
        (("{{relation}}", f"rate(headrace_log_end[{_RATE}])"),),
    ),
    Chart(
        "Epochs",
        "How long epochs take, from their poll to their commit.",
        "s",
        tuple(
            (
                f"p{p}",
                f"histogram_quantile({p / 100}, rate(headrace_epoch_seconds_bucket[{_RATE}]))",
            )
            for p in (50, 95, 99)
        ),
    ),
    Chart(
        "Epochs by width",
        "Narrow epochs run in the server's process, wide ones as Spark jobs.",
        "ops",
        (("{{width}}", f"rate(headrace_epochs_by_width_total[{_RATE}])"),),
    ),
    Chart(
        "Where epochs spend their time",
        "Seconds of epochs in a second, by what they do.",
        "s",
        (("{{activity}}", f"rate(headrace_epoch_spent_seconds_total[{_RATE}])"),),
    ),
    Chart(
        "Since the last commit",
        "An idle database commits nothing.",
        "s",
        (("seconds", "time() - headrace_last_commit_timestamp_seconds"),),
    ),
    Chart(
        "What views do not show",
        "For how long the oldest change has waited that a view does not show.",
        "s",
        (("{{view}}", "headrace_view_seconds_behind"),),
    ),
    Chart(
        "Pending changes",
        "Changes that have arrived and that a view does not show.",
        "short",
        (("{{view}}", "headrace_view_pending_changes"), ("all", "headrace_pending_changes")),
    ),
    Chart(
        "Source lag",
        "Messages that a source has left to read.",
        "short",
        (("{{relation}}", "headrace_source_behind"),),
    ),
    Chart(
        "Sink lag",
        "For how long the oldest change has waited that a sink has not delivered.",
        "s",
        (("{{sink}}", "headrace_sink_seconds_behind"),),
    ),
    Chart(
        "Refused rows",
        "Rows that the target of a sink has refused: SHOW ERRORS FOR the sink has them.",
        "short",
        (("{{sink}}", "headrace_sink_refused_rows_total"),),
    ),
    Chart(
        "Rejected rows",
        "Rows that did not fit.",
        "ops",
        (("{{relation}}", f"rate(headrace_rejected_rows_total[{_RATE}])"),),
    ),
    Chart(
        "Stopped views",
        "1 for a view that is not maintained any more: SHOW DIRTY says why.",
        "short",
        (("{{view}}", "headrace_view_stopped"),),
    ),
    Chart(
        "Rows in quarantine",
        "Rows on which the query of a view fails, and that it leaves out: SHOW ERRORS has them.",
        "short",
        (("{{view}}", "headrace_view_quarantined_rows"),),
    ),
    Chart(
        "Dirty views",
        "For how long a view is known to differ from its inputs: SHOW DIRTY says where and why.",
        "s",
        (("{{view}}", "headrace_view_dirty_age_seconds"),),
    ),
    Chart(
        "Wrong rows",
        "Rows that reconciliation found to differ: SHOW EVIDENCE lists them.",
        "short",
        (("{{view}}", "headrace_reconciled_wrong_rows_total"),),
    ),
    Chart(
        "Requests",
        "By operation and outcome.",
        "reqps",
        (
            (
                "{{operation}} {{outcome}}",
                f"sum by (operation, outcome) (rate(headrace_requests_total[{_RATE}]))",
            ),
        ),
    ),
    Chart(
        "Seconds of requests",
        "The 99th percentile, until an answer began to be sent.",
        "s",
        (
            (
                "{{operation}}",
                _quantile(
                    99, f"sum by (operation, le) (rate(headrace_request_seconds_bucket[{_RATE}]))"
                ),
            ),
        ),
    ),
    Chart(
        "Clients",
        "What is connected, and what runs.",
        "short",
        (
            ("subscribers", "headrace_subscribers"),
            ("sessions", "headrace_sessions"),
            ("statements", "headrace_statements_running"),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as JSON for Grafana's import, which asks for the data source."""
    columns = 2
    width = _WIDTH // columns
    return {
        "title": "Headrace",
        "uid": "headrace",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": chart.title,
                "description": chart.meaning,
                "datasource": {"type": "prometheus", "uid": "${source}"},
                "gridPos": {
                    "x": number % columns * width,
                    "y": number // columns * _HEIGHT,
                    "w": width,
                    "h": _HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": chart.unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
                "targets": [
                    {"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend}
                    for i, (legend, query) in enumerate(chart.queries)
                ],
            }
            for number, chart in enumerate(CHARTS)
        ],
    }
