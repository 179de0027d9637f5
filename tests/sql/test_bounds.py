"""What is nested too deeply, or too long, is refused before Spark parses it, at its place."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError
from headrace.planning.sql import parse
from headrace.planning.sql.cursor import DEEPEST, HIGHEST, MOST_WORDS


def nested(before: str, inner: str, after: str, times: int) -> str:
    return before * times + inner + after * times


DEEP = "the query is nested too deeply"
HIGH = f"more than {HIGHEST} operators in a row are not supported"
LONG = f"more than {MOST_WORDS:,} words and operators in a query are not supported"


@pytest.mark.parametrize(
    ("sql", "primary"),
    [
        ("SELECT " + nested("(", "1", ")", 10_000), DEEP),
        ("SELECT " + "NOT " * 20_000 + "true", HIGH),
        ("SELECT " + "- " * 3_000 + "1", HIGH),
        (nested("SELECT * FROM (", "SELECT 1", ")", 1_000), DEEP),
        ("SELECT " + nested("CASE WHEN a = 1 THEN 2 ELSE ", "0", " END", 3_000) + " FROM t", DEEP),
        ("SELECT " + ", ".join(f"{i} AS c{i}" for i in range(20_000)), LONG),
        ("SELECT " + ", ".join(f"c{i}" for i in range(20_000)) + " FROM t", LONG),
        ("SELECT a FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(20_000)), LONG),
        ("SELECT " + " + ".join(["a"] * 500) + " FROM t", HIGH),
        ("SELECT " + nested("(", "a", " + a)", 100) + " + a" * 150 + " FROM t", HIGH),
        (" UNION ALL ".join(["SELECT a FROM t"] * 400), HIGH),
        ("CREATE TABLE t (a INT, b AS " + nested("(", "a", ")", 200) + ")", DEEP),
        ("DELETE FROM t WHERE " + "NOT " * 400 + "a", HIGH),
    ],
)
def test_what_is_nested_too_deeply_or_too_long_is_refused_at_its_place(sql: str, primary: str):
    with pytest.raises(HeadraceError) as refused:
        parse(sql)
    assert refused.value.primary == primary
    assert refused.value.span is not None
    assert refused.value.hint is not None
    assert 0 < refused.value.span.start < len(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + nested("(", "1", ")", DEEPEST),
        "SELECT " + nested("coalesce(", "1", ", 2)", DEEPEST),
        "SELECT " + " || ".join(["a"] * HIGHEST) + " FROM t",
        "SELECT a FROM t WHERE " + " OR ".join(f"a = {i} AND b = {i}" for i in range(1_400)),
        "SELECT a FROM t WHERE a IN (" + ", ".join(map(str, range(50_000))) + ")",
        "INSERT INTO t VALUES "
        + ", ".join("(-1, DATE '2026-01-01', array(1))" for _ in range(9_000)),
        "SELECT `case`, t.case, (a), (b), CASE a WHEN 1 THEN 2 END FROM t",
        "SELECT " + ", ".join(["a * 2 + t.case"] * 1_000) + " FROM t",
    ],
)
def test_what_people_write_and_programs_make_is_within_the_bounds(sql: str):
    assert parse(sql)
