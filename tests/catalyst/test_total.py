"""Which values of subqueries are compared with rows by reading only the rows between two values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.circuit.explain import explain

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


def in_one_query(values: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(bound, value) for bound, each in values.items() for value in each]


def is_compared(planned: Planned, bound: str, value: str) -> bool:
    circuit = planned.circuit(f"SELECT k FROM t WHERE {bound} > {value}")
    return "Compared" in "\n".join(explain(circuit, planned.names.__getitem__, {}))


def test_arithmetic_of_times_that_cannot_fail_is_compared_by_its_value(planned: Planned) -> None:
    missed = [v for b, v in in_one_query(FOUND) if not is_compared(planned, b, v)]
    assert missed == []


def test_arithmetic_of_times_that_may_overflow_waits_for_its_guards(planned: Planned) -> None:
    taken = [v for b, v in in_one_query(NOT_FOUND) if is_compared(planned, b, v)]
    assert taken == []
