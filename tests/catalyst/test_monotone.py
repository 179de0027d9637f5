"""Which values never fall as the time that they are computed from rises."""

from __future__ import annotations

import pytest

from headrace.planning.catalyst.allowed import rises

pytestmark = pytest.mark.spark

RISES = (
    "ts",
    "CAST(ts AS DATE)",
    "date_trunc('hour', ts)",
    "trunc(CAST(ts AS DATE), 'MM')",
    "ts + INTERVAL 1 DAY",
    "ts - INTERVAL 1 DAY",
    "unix_micros(ts) + 5 - 3",
    "window(ts, '1 hour').start",
    "window(ts + INTERVAL 5 MINUTES, '1 hour').end",
)
MAY_FALL = (
    "hour(ts)",
    "CAST(ts AS STRING)",
    "5 - unix_micros(ts)",
    "k",
    "window(timestamp_micros(0 - unix_micros(ts)), '1 hour').start",
    "CASE WHEN ts > TIMESTAMP '2026-01-01' THEN TIMESTAMP '2025-01-01' ELSE ts END",
)


def test_values_that_never_fall_are_known(planned):
    found = {}
    for text in RISES + MAY_FALL:
        project = planned.circuit(f"SELECT {text} AS n FROM t").output.child.plan
        found[text] = rises(project.expressions[0].handle.child())
    assert found == dict.fromkeys(RISES, True) | dict.fromkeys(MAY_FALL, False)
