"""What a function is, what identifies it, and what it may return."""

from __future__ import annotations

import math
import sys
import threading
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace import HeadraceError, function
from headrace.planning.functions import FunctionRecord, Kind
from headrace.planning.functions.folds import callable_of
from headrace.planning.functions.function import digest
from headrace.planning.functions.results import UnfitError, fitted, pickled

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
PAIR = StructType().add("a", IntegerType()).add("b", StringType())
RATE = Decimal("0.25")


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (None, IntegerType(), None),
        (True, BooleanType(), True),
        (np.int64(3), IntegerType(), 3),
        (-128, ByteType(), -128),
        (3, DoubleType(), 3.0),
        (np.float32(0.5), DoubleType(), 0.5),
        (math.inf, DoubleType(), math.inf),
        (Decimal("2.345"), DecimalType(5, 2), Decimal("2.35")),
        (7, DecimalType(5, 2), Decimal("7.00")),
        (Decimal("-999.994"), DecimalType(5, 2), Decimal("-999.99")),
        (Decimal(0), DecimalType(2, 2), Decimal("0.00")),
        ("x", StringType(), "x"),
        (b"x", BinaryType(), bytearray(b"x")),
        (date(2024, 1, 1), DateType(), date(2024, 1, 1)),
        (NOON, TimestampType(), NOON),
        (timedelta(1), DayTimeIntervalType(), timedelta(1)),
        (time(1, 2, 3, 987654), TimeType(3), time(1, 2, 3, 987000)),
        ((1, None), ArrayType(IntegerType()), [1, None]),
        (np.array([1, 2]), ArrayType(LongType()), [1, 2]),
        ({"k": [1]}, MapType(StringType(), ArrayType(DoubleType())), {"k": [1.0]}),
        ({"b": "x"}, PAIR, (None, "x")),
        ([1, "x"], PAIR, (1, "x")),
    ],
)
def test_a_value_of_the_declared_type_is_taken_as_pyspark_takes_it(value, type_, expected):
    found = fitted(value, type_)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "type_", "said"),
    [
        (3.7, IntegerType(), "3.7 is a Python float, not a value of INT"),
        (True, IntegerType(), "a Python bool"),
        (1, BooleanType(), "a Python int"),
        (128, ByteType(), "128 is out of the range of TINYINT"),
        (0.5, DecimalType(5, 2), "a Python float"),
        (Decimal(1000), DecimalType(5, 2), "too many digits for DECIMAL(5,2)"),
        (Decimal("999.995"), DecimalType(5, 2), "too many digits"),
        (Decimal("1e200"), DecimalType(38, 10), "too many digits"),
        (Decimal("NaN"), DecimalType(5, 2), "NaN is no value of DECIMAL(5,2)"),
        (3, StringType(), "a Python int"),
        ("x", BinaryType(), "a Python str"),
        (NOON, DateType(), "a Python datetime"),
        (date(2024, 1, 1), TimestampType(), "a Python date"),
        (NOON, TimestampNTZType(), "has a time zone"),
        ("ab", ArrayType(StringType()), "a Python str"),
        ([1, "x"], ArrayType(IntegerType()), "'x' is a Python str"),
        ({None: 1}, MapType(StringType(), IntegerType()), "a Python dict"),
        ((1,), PAIR, "1 fields were returned where 2 are declared"),
        ({"c": 1}, PAIR, "the field 'c' is not declared"),
        ("x" * 500, IntegerType(), "..."),
    ],
)
def test_a_value_of_another_type_is_an_error_and_never_null(value, type_, said):
    with pytest.raises(UnfitError) as error:
        fitted(value, type_)
    assert said in str(error.value)


def _counted(start):
    def body(x):
        """Add to what was given first."""
        return x + start

    return body


def _documented_otherwise(start):
    def body(x):
        """Do as the other one does."""
        # Another line.
        return x + start

    return body


def _other(start):
    def body(x):
        return x - start

    return body


def _helper(x):
    return x * RATE


def _helper_calls(x):
    return _helper(x)


def _calls_itself(x):
    return _calls_itself(x - 1) if x else 0


def test_a_digest_tells_code_from_code():
    assert digest(_counted(1)) == digest(_counted(1)) == digest(_documented_otherwise(1))
    different = [
        _counted(1),
        _counted(2),
        _counted(1.0),
        _other(1),
        lambda x: x + 1,
        lambda x: x + 2,
        lambda x, y=1: x + y,
        lambda x: x in {"a", "b"},
        lambda x: x in {"a", "c"},
        _helper,
        _helper_calls,
        _calls_itself,
        partial(_helper, 1),
        partial(_helper, 2),
        math.sqrt,
        math.exp,
        Decimal("1.5").compare,
    ]
    assert len({digest(body) for body in different}) == len(different)


def test_a_digest_sees_the_constants_and_functions_that_are_named(monkeypatch):
    before = digest(_helper_calls)
    assert digest(_helper_calls) == before
    monkeypatch.setitem(globals(), "RATE", Decimal("0.26"))
    assert digest(_helper_calls) != before


def test_a_record_survives_json_and_says_what_differs():
    made = function("Net", lambda x: x, returns="INT", arguments=["INT"], deterministic=True)
    record = made.record(IntegerType(), (IntegerType(),))
    assert record.name == "net"
    assert record.signature == "net(int) RETURNS int"
    assert FunctionRecord.of_json(record.to_json()) == record
    other = function("net", lambda x: x + 1, returns="BIGINT", kind="arrow").record(
        LongType(), None
    )
    assert record.differences(other) == (
        "its result",
        "its arguments",
        "its kind",
        "whether it is deterministic",
        "its code",
    )
    assert other.kind is Kind.ARROW
    assert record.differences(record) == ()


async def _later(x):
    return x


def _many(x):
    yield x


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: function(lambda x: x, returns="INT"), "is no name"),
        (lambda: function("f", 3, returns="INT"), "cannot be called"),
        (lambda: function("f", _later, returns="INT"), "a generator or a coroutine"),
        (lambda: function("f", _many, returns="INT"), "a generator or a coroutine"),
        (lambda: function("f", lambda x: x, returns="INT", kind="panda"), 'Did you mean "pandas"?'),
        (lambda: function("f", lambda: 1, returns="INT", kind="pandas"), "takes no arguments"),
        (lambda: function("f", lambda *, x: x, returns="INT"), 'keyword argument "x"'),
        (
            lambda: function("f", lambda x, y=1: x + y, returns="INT", arguments=["INT"] * 3),
            "1 to 2",
        ),
        (lambda: function("f", lambda x: x, returns=""), "without the type that it returns"),
    ],
)
def test_what_sql_cannot_call_is_refused_when_it_is_declared(make, said):
    with pytest.raises(HeadraceError) as refused:
        make()
    assert refused.value.code == "invalid"
    assert said in str(refused.value)


def test_a_function_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    held = function("held", lambda x: (lock, x), returns="INT")
    with pytest.raises(HeadraceError, match='function "held" cannot be sent'):
        callable_of(held, IntegerType())


def test_an_exception_names_the_function_the_place_and_the_arguments():
    def failing(x, y):
        raise ValueError("no\nway", x, y) if y is None else ValueError("no\nway")

    called = callable_of(function("failing", failing, returns="INT"), IntegerType())
    with pytest.raises(HeadraceError) as failed:
        called(1, "a" * 1000)
    assert failed.value.primary == 'function "failing" failed'
    assert failed.value.detail.startswith("ValueError: no way (line ")
    assert "test_function.py), called with (1, 'aaa" in failed.value.detail
    assert len(failed.value.detail) < 400


def test_a_function_of_a_file_is_sent_to_processes_that_cannot_import_it(monkeypatch):
    module = ModuleType("a_file_of_functions")
    module.__file__ = "a_file_of_functions.py"
    exec("def doubled(x):\n    return 2 * x", module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, module.__name__, module)
    given = function("doubled", module.doubled, returns="INT")
    code = pickled(given, given)
    monkeypatch.delitem(sys.modules, module.__name__)
    assert cloudpickle.loads(code)(4) == 8


def test_a_digest_is_always_the_same():
    """Values that the walk itself makes are gone when others are described."""
    many = [(lambda x, n=n: (x, [n], {"k": n}, {n})) for n in range(50)]

    def body(x):
        return [each(x) for each in many]

    assert len({digest(body) for _ in range(200)}) == 1
