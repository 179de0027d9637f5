"""Which values of subqueries are compared with rows by reading only the rows between two values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.planning.circuit.explain import explain

if TYPE_CHECKING:
    from planned import Planned

pytestmark = pytest.mark.spark

TS, DAY, WHOLE = "(SELECT max(ts) FROM t)", "(SELECT max(CAST(ts AS DATE)) FROM t)", "max(k)"
NUMBER = f"(SELECT {WHOLE} FROM t)"
FOUND = {
    "ts": (
        f"{TS} - INTERVAL '1' DAY",
        f"{TS} + INTERVAL '1 02:03:04.5' DAY TO SECOND",
        f"{TS} - INTERVAL 1 DAY 2 HOURS",
        f"{TS} - INTERVAL '3' MONTH",
        f"{TS} - make_interval(1, 2, 0, 3)",
        f"timestampadd(HOUR, -3, {TS})",
        f"dateadd(DAY, 5, {TS})",
        f"date_trunc('DAY', {TS}) - INTERVAL '1' SECOND",
        f"greatest({TS}, TIMESTAMP '2024-01-01')",
        f"CAST({DAY} - INTERVAL '1' MONTH AS TIMESTAMP)",
        f"coalesce({TS} - INTERVAL '1' DAY, TIMESTAMP '2024-01-01')",
    ),
    "CAST(ts AS TIMESTAMP_NTZ)": (f"CAST({TS} AS TIMESTAMP_NTZ) - INTERVAL '1' HOUR",),
    "CAST(ts AS DATE)": (
        f"{DAY} - INTERVAL '7' DAY",
        f"{DAY} - 7",
        f"date_add({DAY}, 7)",
        f"date_sub({DAY}, 7)",
        f"{DAY} - INTERVAL '1' YEAR",
        f"add_months({DAY}, -2)",
        f"last_day({DAY})",
        f"trunc({DAY}, 'MM')",
        f"to_date({TS}) - 1",
        f"date_from_unix_date({NUMBER})",
    ),
    "k": (
        f"year({DAY})",
        f"month({DAY}) - 1",
        f"extract(HOUR FROM {TS})",
        f"datediff({DAY}, DATE '2024-01-01')",
    ),
    "x": (f"unix_micros({TS})", f"unix_seconds({TS}) - 3600"),
}
NOT_FOUND = {
    "ts": (
        f"{TS} + INTERVAL '106751991' DAY",
        f"{TS} + INTERVAL '200000' MONTH",
        f"{TS} - {NUMBER} * INTERVAL '1' DAY",
        f"timestampadd(YEAR, 20000, {TS})",
        f"timestamp_seconds({NUMBER})",
    ),
    "CAST(ts AS DATE)": (f"next_day({DAY}, 'no day')", f"date_add({DAY}, {NUMBER})"),
}


def compared(planned: Planned, bound: str, values: tuple[str, ...]) -> int:
    """Return how many conditions of one query are comparisons with a value."""
    conditions = " AND ".join(f"{bound} > {value}" for value in values)
    circuit = planned.circuit(f"SELECT k FROM t WHERE {conditions}")
    return sum("Compared" in line for line in explain(circuit, planned.names.__getitem__, {}))


@pytest.mark.long
@pytest.mark.parametrize("bound", FOUND)
def test_arithmetic_of_times_that_cannot_fail_is_compared_by_its_value(
    planned: Planned, bound: str
) -> None:
    values = FOUND[bound]
    if compared(planned, bound, values) < len(values):
        assert [v for v in values if not compared(planned, bound, (v,))] == []


@pytest.mark.parametrize("bound", NOT_FOUND)
def test_arithmetic_of_times_that_may_overflow_waits_for_its_guards(
    planned: Planned, bound: str
) -> None:
    values = NOT_FOUND[bound]
    if compared(planned, bound, values):
        assert [v for v in values if compared(planned, bound, (v,))] == []
