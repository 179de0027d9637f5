"""Which expressions of VALUES are evaluated once, however often they are written."""

from __future__ import annotations

import pytest

from headrace.interfaces.statements.changing.inserts import is_repeatable
from headrace.planning.sql.lexer import tokens


@pytest.mark.parametrize("text", ["now()", "array(1, (2))", "TIMESTAMP '2026-01-01T00:00:00Z'"])
def test_what_plainly_leaves_nothing_to_chance_is_evaluated_once(text: str) -> None:
    assert is_repeatable(list(tokens(text)))


@pytest.mark.parametrize(
    "text", ["uuid()", "`rand`()", "array(rand())", "(SELECT shuffle(array(1, 2)))"]
)
def test_all_else_is_evaluated_for_each_row(text: str) -> None:
    assert not is_repeatable(list(tokens(text)))
