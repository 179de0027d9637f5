"""Expressions over columns compute what they did when a column has another name."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql.types import IntegerType

from headrace.errors import HeadraceError
from headrace.interfaces.statements.defining.columns import ColumnExpressions
from headrace.types import Column

pytestmark = pytest.mark.spark

COLUMNS = ("a", "b", "day")
NAMES = ("a", "b", "w", "day", "month")


def expression(random, depth):
    """Return a random expression over the columns, in which variables may hide these."""
    if not depth or random.random() < 0.2:
        return random.choice((*COLUMNS, *COLUMNS, "1"))
    one, other = (expression(random, depth - 1) for _ in range(2))
    name, second = random.sample(NAMES, 2)
    inner = expression(random, depth - 1)
    match random.randrange(5):
        case 0:
            return f"({one} + {other} * 2)"
        case 1:
            return f"reduce(transform(array({one}, 2), {name} -> {name} + {inner}), 0, (x, y) -> x + y)"
        case 2:
            return f"reduce(array({one}, 3), 1, ({name}, {second}) -> {second} - {name} + {inner})"
        case 3:
            return f"named_struct('{name}', {one}).{name} /* {name} */"
        case _:
            return f"datediff(DATE '2026-01-01' + INTERVAL '1' DAY, date_sub(DATE '2026-01-01', {one}))"


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.long)])
def test_a_random_expression_computes_the_same_over_a_renamed_column(planned, count):
    random = Random(count)
    columns = tuple(Column(name, IntegerType(), nullable=True) for name in COLUMNS)
    over = ColumnExpressions(planned.engine, columns)
    before, after = [], []
    for _ in range(count):
        text, name = expression(random, 4), random.choice(COLUMNS)
        to = random.choice([each for each in (*NAMES, "x.y", "select") if each not in COLUMNS])
        found = over.renamed(text, name, to)
        present = ", ".join(f"`{to}`" if each == name else each for each in COLUMNS)
        rows = "VALUES (3, 5, 7), (11, 13, 17)"
        before.append(f"SELECT {text} AS value FROM {rows} AS t({', '.join(COLUMNS)})")
        after.append(f"SELECT {found} AS value FROM {rows} AS t({present})")
    sql = planned.spark.sql
    asked = [sql(" UNION ALL ".join(each[at : at + 20])).collect()
             for each in (before, after) for at in range(0, count, 20)]  # fmt: skip
    half = len(asked) // 2
    assert asked[:half] == asked[half:]


def test_an_expression_reads_what_its_names_resolve_to(planned):
    columns = tuple(Column(name, IntegerType(), nullable=True) for name in COLUMNS)
    over = ColumnExpressions(planned.engine, columns)
    assert over.reads("transform(array(a), b -> b + 1)") == {"a"}
    assert over.reads("DATE '2026-01-01' + INTERVAL '1' DAY") == frozenset()
    with pytest.raises(HeadraceError, match="does not exist"):
        over.reads("a + c")
