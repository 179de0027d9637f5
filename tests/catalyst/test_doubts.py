"""Where a vector is in doubt: an error of a row is one only where the row's value is needed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.planning.catalyst.vectors import DoubtError, InputRows
from headrace.planning.catalyst.vectors.vector import (
    Call,
    Choice,
    Connective,
    Constant,
    InputColumn,
    Value,
    Vector,
)

ROWS = InputRows.of(pa.table({"b": [True, False, None], "n": [1, 2**63 - 1, 3]}))
CONDITION, NUMBER = InputColumn(pa.bool_(), 0), InputColumn(pa.int64(), 1)
ONE = Constant(pa.int64(), pa.scalar(1))
NEXT = Call(pa.int64(), pc.add_checked, (NUMBER, ONE))
IS_SMALL = Call(pa.bool_(), pc.less, (NEXT, Constant(pa.int64(), pa.scalar(3))))


def test_an_overflow_is_a_doubt():
    for _ in range(2):
        with pytest.raises(DoubtError):
            NEXT.over(ROWS)


def test_an_alternative_is_not_in_doubt_because_of_rows_that_do_not_need_it():
    negated = Call(pa.bool_(), pc.invert, (CONDITION,))
    assert Choice(pa.int64(), CONDITION, NEXT, NUMBER).over(ROWS).to_pylist() == [2, 2**63 - 1, 3]
    with pytest.raises(DoubtError):
        Choice(pa.int64(), negated, NEXT, NUMBER).over(ROWS)


def test_a_condition_is_not_in_doubt_where_the_one_before_decides():
    decided = Connective(pa.bool_(), CONDITION, IS_SMALL, decided=False)
    assert decided.over(ROWS).to_pylist() == [True, False, False]
    with pytest.raises(DoubtError):
        Connective(pa.bool_(), CONDITION, IS_SMALL, decided=True).over(ROWS)


def test_a_chain_of_conditions_is_evaluated_once_per_condition():
    counted = Counted(pa.bool_(), [])
    chain: Vector = counted
    for _ in range(200):
        chain = Connective(pa.bool_(), chain, IS_SMALL, decided=False)
    with pytest.raises(DoubtError):
        chain.over(InputRows(ROWS.columns, ROWS.count))
    assert len(counted.calls) == 1


@dataclass(frozen=True, slots=True, eq=False)
class Counted(Vector):
    """TRUE; counts how often it is evaluated."""

    calls: list[None]

    def computed(self, rows: InputRows) -> Value:
        self.calls.append(None)
        return pa.array([True] * rows.count)
