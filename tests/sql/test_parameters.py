"""Parameters are bound as literals, never as text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.lexer import tokens
from headrace.planning.sql.parameters import bind, literal_text


def words(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


def test_parameters_are_bound_in_order_or_by_name() -> None:
    assert words(bind("SELECT ?, ? FROM t", [1, "a"]).text) == words("SELECT 1, 'a' FROM t")
    by_name = bind("SELECT :b, :a, :b", {"a": None, "b": True})
    assert words(by_name.text) == words("SELECT TRUE, NULL, TRUE")
    assert words(bind("SELECT a FROM t LIMIT?", [3]).text)[-2:] == ["LIMIT", "3"]


@pytest.mark.parametrize(
    "value", ["'; DROP TABLE t; --", "''", "a\nb", "?", ":a", "\\' OR 1 --", "\u2019"]
)
def test_no_value_ends_its_literal(value: str) -> None:
    bound = bind("SELECT * FROM t WHERE a = ? AND b = ?", [value, value])
    assert len(bound.statements()) == 1
    assert words(bound.text).count("AND") == 1


def test_a_negative_number_makes_no_comment_of_what_follows() -> None:
    found = words(bind("SELECT 1 -?, -? FROM t", [-1, -2.5]).text)
    assert found == words("SELECT 1 - (-1), - (-2.5D) FROM t")


def test_what_looks_like_a_parameter_elsewhere_is_none() -> None:
    text = "SELECT '?', ':a', `:a?`, x::INT, v:path, a[1:2], \"?\" -- ? :a\n/* ? :a */ FROM t"
    assert bind(text, []).text == text
    assert bind(text, {}).text == text
    assert bind(text, None).text == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**63, "9223372036854775808"),
        (-(2**63), "(-9223372036854775808)"),
        (np.int32(5), "5"),
        (0.1, "0.1D"),
        (-0.0, "(-0.0D)"),
        (1e30, "1e+30D"),
        (float("nan"), "CAST('NaN' AS DOUBLE)"),
        (Decimal("1E+3"), "1000BD"),
        (Decimal("-0.50"), "(-0.50BD)"),
        ("it's", "'it''s'"),
        ("C:\\new", "CAST(X'433a5c6e6577' AS STRING)"),
        (b"\x00\xff", "X'00ff'"),
        (dt.date(2026, 1, 2), "DATE '2026-01-02'"),
        (
            dt.datetime.fromisoformat("2026-01-02 03:04:05.5"),
            "TIMESTAMP '2026-01-02 03:04:05.500000'",
        ),
        (dt.datetime.fromisoformat("2026-01-02 03:04:05+01:00"), "TIMESTAMP '2026-01-02 02:04:05'"),
        (dt.time(1, 2, 3, 40), "TIME '01:02:03.000040'"),
        (dt.timedelta(days=-1, microseconds=-5), "INTERVAL '-1 00:00:00.000005' DAY TO SECOND"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
        ([1, [None]], "array(1, array(NULL))"),
    ],
)
def test_a_value_becomes_a_literal_of_its_type(value: object, text: str) -> None:
    (place,) = [span.rewritten.span for span in [bind("", None)]]
    assert literal_text(value, place) == text


@pytest.mark.parametrize(
    ("text", "parameters", "message", "place"),
    [
        ("SELECT ?, ?", [1], "parameter 2 has no value", 10),
        ("SELECT ?", [1, 2], "parameter 2 is given, but the statement has no such parameter", 0),
        ("SELECT :user", {"usr": 1}, 'parameter "user" has no value', 7),
        ("SELECT :a", {"a": 1, "b": 2}, 'parameter "b" is given, but', 0),
        ("SELECT :a", [1], "parameter :a takes its value from a mapping", 7),
        ("SELECT ?", {"a": 1}, "parameter ? takes its value from a sequence", 7),
        ("SELECT ?", [object()], "a parameter of type object has no literal", 7),
        ("SELECT ?", [10**38], "a number of more than 38 digits has no literal", 7),
        ("CREATE VIEW v AS SELECT ? AS x", [1], "a parameter in this statement", 24),
    ],
)
def test_a_parameter_that_cannot_be_bound_is_an_error_at_its_place(
    text: str, parameters: Any, message: str, place: int
) -> None:
    with pytest.raises(HeadraceError) as refused:
        bind(text, parameters).statements()
    assert refused.value.code in {Code.INVALID, Code.UNSUPPORTED}
    assert refused.value.primary.startswith(message)
    assert refused.value.span is not None
    assert (refused.value.span.text, refused.value.span.start) == (text, place)
    with pytest.raises(HeadraceError, match="parameters are a str"):
        bind(text, "abc")


@pytest.mark.parametrize(
    ("text", "values"), [("SELECT $1", [1]), ("SELECT %s", [1]), ("SELECT %(a)s", {"a": 1})]
)
def test_parameters_of_other_libraries_are_answered_by_those_of_this_one(text, values):
    with pytest.raises(HeadraceError) as refused:
        bind(text, values)
    assert refused.value.hint is not None
    assert "Write ? for each value of a sequence, or :name" in refused.value.hint
