"""The benchmark of operators: what it counts, and what it prints."""

from __future__ import annotations

from rich.console import Console

from benchmarks import operators, report


def test_a_step_is_counted_and_printed_beside_that_of_another_checkout() -> None:
    case = next(operators.integrates())
    inputs = case.change(1000)
    found = operators.counted(case, inputs)
    assert found["consolidations"] == 1
    assert found["kernels"] >= 1
    row = {"operator": case.name, "rows": 1000, "micros": 50.0, **found}
    console = Console(width=200, record=True)
    console.print(report.operators([{**row, "beside": {"micros": 200.0}}]))
    assert "0.25" in console.export_text()
