"""What a fold is, what identifies it, what its states may be, and how it runs over events."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, LongType, StructType, TimestampType

import headrace
from headrace.errors import HeadraceError
from headrace.planning.functions import FunctionRecord
from headrace.planning.functions.folds import NotPlainError, decoded, encoded, folding_of

NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001
EVENTS = pa.table(
    {
        "at": pa.array([NOON, NOON + timedelta(1), None], pa.timestamp("us", "UTC")),
        "amount": pa.array([Decimal("1.25"), Decimal("2.50"), None], pa.decimal128(10, 2)),
        "within": pa.array(
            [{"at": NOON}, None, None], pa.struct([("at", pa.timestamp("us", "UTC"))])
        ),
    }
)
RETURNS = StructType().add("total", DecimalType(10, 2)).add("last", TimestampType())


class Place(NamedTuple):
    x: int


class Colour(IntEnum):
    RED = 1


def total(state, event):
    seen = event.at if event.within is None else event.within["at"]
    return {"total": state["total"] + (event.amount or 0), "last": seen or state["last"]}


def made(step=total, **parts):
    given = {
        "key": ["k"],
        "order_by": ["at"],
        "returns": "n INT",
        "start": {"total": Decimal(0), "last": None},
    }
    return headrace.fold(**(given | parts))(step)


NAIVE = st.datetimes().map(lambda at: at.replace(fold=0))
TIMES = st.times().map(lambda at: at.replace(fold=0))

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.decimals(allow_nan=False) | st.dates() | TIMES | NAIVE | st.timedeltas()
    | NAIVE.map(lambda at: at.replace(tzinfo=UTC)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers() | st.tuples(st.text()), inner),
    max_leaves=8,
)  # fmt: skip


def typed(value):
    """The value with the types of all its parts, and dictionaries in their order."""
    if isinstance(value, list | tuple):
        return type(value), [typed(each) for each in value]
    if isinstance(value, dict):
        return dict, [(typed(key), typed(each)) for key, each in value.items()]
    return type(value), repr(value)


@given(plain)
def test_a_state_comes_back_as_it_was(value):
    assert typed(decoded(encoded(value))) == typed(value)


@pytest.mark.parametrize(
    "value",
    [{1}, frozenset(), object(), Colour.RED, OrderedDict(), Place(1), [{"a": {2}}], {(1, Colour.RED): 1},
     datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1))), bytearray(b"x"), 1j, print],
)  # fmt: skip
def test_only_plain_values_are_states(value):
    with pytest.raises(NotPlainError):
        encoded(value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": []}, "names of columns as key"),
        ({"order_by": [1]}, "names of columns as order_by"),
        ({"start": {1}}, "cannot be kept"),
        ({"step": str.upper, "name": "upper"}, "does not take a state and an event"),
        ({"finish": lambda: None}, "does not take a state, to finish it"),
        ({"name": "no name"}, "is no name for a function"),
    ],
)
def test_what_cannot_be_a_fold_is_refused(change, why):
    with pytest.raises(HeadraceError, match=why):
        made(**change)


def test_a_fold_of_function_is_refused():
    with pytest.raises(HeadraceError, match=r"headrace\.fold"):
        headrace.function(total, returns="INT", kind="fold")


def record(**parts):
    return made(**parts).record(StructType().add("n", LongType()), None)


def test_its_record_has_its_key_its_order_and_all_its_code():
    first = record()
    assert FunctionRecord.of_json(first.to_json()) == first
    assert first.signature == "total(TABLE PARTITION BY k ORDER BY at) RETURNS struct<n:bigint>"
    changes = [{"key": ["j"]}, {"order_by": ["id"]}, {"start": 1}, {"finish": lambda state: state}]
    for change in changes:
        assert record(**change) != first
        assert len(first.differences(record(**change))) == 1


def test_it_runs_from_the_start_and_from_a_state_alike():
    folding = folding_of(made(), RETURNS)
    whole = folding.states(None, folding.events(EVENTS), [0, 1, 3])
    first = folding.states(None, folding.events(EVENTS.slice(0, 1)), [1])
    rest = folding.states(first[0], folding.events(EVENTS.slice(1)), [2])
    assert (whole[1], whole[2]) == (first[0], rest[0])
    assert folding.rows(whole).to_pylist() == [
        {"total": Decimal("0.00"), "last": None},
        {"total": Decimal("1.25"), "last": NOON.replace(tzinfo=UTC)},
        {"total": Decimal("3.75"), "last": (NOON + timedelta(1)).replace(tzinfo=UTC)},
    ]
    assert folding.rows([]).to_pylist() == []


def broken(state, _event):
    return {"total": 1 // len(state["total"].as_tuple().digits[1:]), "last": None}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"step": broken}, r"ZeroDivisionError.* \(line \d+ of test_folds.py\), at at=datetime"),
        ({"step": lambda _, event: {event.amount}, "name": "sets"}, "state cannot be kept"),
        ({"finish": lambda _: None}, "returned None in place of a row"),
        ({"finish": lambda state: state["no"]}, "KeyError: 'no'.*finishing"),
        ({"finish": lambda _: {"total": "x", "last": None}}, "does not have the declared type"),
        ({"finish": lambda _: {"sum": 1}}, "'sum' is not declared"),
    ],
)
def test_an_error_of_its_own_says_where_and_at_which_event(parts, why):
    folding = folding_of(made(**parts), RETURNS)
    with pytest.raises(HeadraceError, match=why):
        folding.rows(folding.states(None, folding.events(EVENTS), [3]))


def test_dates_are_states():
    assert decoded(encoded([date(2024, 1, 1), NOON])) == [date(2024, 1, 1), NOON]
