"""Feldera's words: those that are read, and those whose error says what to do here."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.defining.options import (
    check_relation_options,
    check_view_options,
)
from headrace.planning.sql import parse


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("'connectors' = '[{}]'", "CREATE SINK name FROM view"),
        ("'skip_unused_columns' = 'true'", "Leave it out"),
        ("'materialized' = 'true'", "Leave it out"),
        ("'append_only' = 'true'", "CREATE STREAM"),
    ],
)
@pytest.mark.parametrize("of_view", [False, True])
def test_an_option_says_what_to_do_instead(option, said, of_view):
    text = (
        f"CREATE MATERIALIZED VIEW v WITH ({option}) AS SELECT 1"
        if of_view
        else f"CREATE TABLE t (id INT) WITH ({option})"
    )
    check = check_view_options if of_view else check_relation_options
    (statement,) = parse(text)
    with pytest.raises(HeadraceError) as caught:
        check(statement.options)
    assert caught.value.code is Code.UNSUPPORTED
    assert said in caught.value.hint
    assert caught.value.span.source in option


def test_lateness_is_a_watermark_that_far_behind():
    (feldera,) = parse(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, at TIMESTAMP LATENESS INTERVAL '1' HOUR NOT NULL)"
    )
    (own,) = parse(
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NOT NULL,"
        " WATERMARK FOR at AS `at` - INTERVAL '1' HOUR)"
    )
    assert feldera.watermark.column == own.watermark.column
    assert feldera.watermark.expression.text == own.watermark.expression.text
    assert [(c.name, c.type.text, c.not_null) for c in feldera.columns] == [
        ("id", "INT", True),
        ("at", "TIMESTAMP", True),
    ]
