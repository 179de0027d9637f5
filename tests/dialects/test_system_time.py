"""FOR SYSTEM_TIME AS OF: what Spark is given, and errors where the user wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import Relation, Stream, Table, View
from headrace.planning.dialects.table_versions import with_versions
from headrace.types import RelationId, Schema

if TYPE_CHECKING:
    from headrace.planning.sql import Rewritten

_COLUMNS = StructType().add("region", "string").add("rate", "integer").add("since", "date")
_SCHEMA = Schema.of_spark(_COLUMNS)
_POLICY = Table(RelationId(1), "policy", _SCHEMA, ("region", "since"), "since")
_RELATIONS: dict[str, Relation] = {
    "policy": _POLICY,
    "plain": Table(RelationId(2), "plain", _SCHEMA, ("region",)),
    "orders": Stream(RelationId(3), "orders", _SCHEMA),
    "v": View(RelationId(4), "v", _SCHEMA, "SELECT * FROM policy", (RelationId(1),)),
}
LATERAL = (
    "LATERAL (SELECT `__0` AS `region`, `__1` AS `rate`, __effective_from AS `since` FROM "
    "(SELECT `region` AS `__0`, `rate` AS `__1`, `since` AS __effective_from, "
    "lead(`since`) OVER (PARTITION BY `region` ORDER BY `since`) AS __effective_until "
    "FROM {name}) AS `policy` WHERE ({time}) >= __effective_from AND "
    "(__effective_until IS NULL OR ({time}) < __effective_until))"
)
"""What the clause stands for where the time is that of another relation's row."""


def read(text: str) -> Rewritten:
    return with_versions(Span(text, 0, len(text)), _RELATIONS)


def versions(time: str, name: str = "policy", *, lateral: bool = True) -> str:
    found = LATERAL.format(time=time, name=name)
    return found if lateral else found.removeprefix("LATERAL ")


def test_a_query_without_the_clause_is_read_as_it_is():
    for text in (
        "SELECT * FROM policy",
        "SELECT 'FOR SYSTEM_TIME AS OF o.ts' FROM policy -- FOR SYSTEM_TIME AS OF x",
        "SELECT /* policy FOR SYSTEM_TIME AS OF x */ 1",
        "SELECT * FROM t PIVOT (sum(x) FOR system_time IN (1, 2))",
    ):
        assert read(text).text == text
        assert not read(text).pieces


TIMES = [
    "o.ts",
    "ts",
    "`the time`",
    "o.s.at",
    "o.items[0].at",
    "CAST(o.ts AS DATE)",
    "o.ts::DATE",
    "coalesce(o.ts, TIMESTAMP '2024-01-01')",
    "o.ts - INTERVAL 1 DAY",
    "o.ts + INTERVAL '1:30' HOUR TO MINUTE",
    "o.ts + INTERVAL 1 DAY 2 HOURS",
    "(o.ts)",
    "CASE WHEN o.x = 1 THEN o.ts ELSE o.ts2 END",
    "date_add(o.day, 2 * (1 + o.n))",
    "o . /* the order's */ ts",
]


@pytest.mark.parametrize("alias", ["p", "AS p", "as `p`", "AS p (a, b, c)"])
@pytest.mark.parametrize("time", TIMES)
def test_a_time_ends_where_its_alias_begins(time, alias):
    text = f"SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF {time} {alias} ON o.r = p.r"
    assert read(text).text == (f"SELECT * FROM orders o JOIN {versions(time)} {alias} ON o.r = p.r")


@pytest.mark.parametrize(
    "rest", ["", " ON o.r = policy.r", " WHERE x", " LEFT JOIN u ON true", ", u", " GROUP BY a"]
)
def test_without_an_alias_the_table_keeps_its_name(rest):
    text = f"SELECT * FROM orders o LEFT JOIN policy FOR SYSTEM_TIME AS OF o.ts{rest}"
    assert read(text).text == (
        f"SELECT * FROM orders o LEFT JOIN {versions('o.ts')} AS `policy`{rest}"
    )


@pytest.mark.parametrize(
    "time",
    [
        "TIMESTAMP '2024-01-01 00:00:00'",
        "DATE '2024-01-01'",
        "'2024-01-01'",
        "TIMESTAMP '2024-01-01' - INTERVAL 3 DAYS",
        "DATE '2024-01-01' + INTERVAL '1' DAY",
    ],
)
def test_a_constant_time_needs_no_other_row(time):
    plain = versions(time, lateral=False)
    for text in (
        "SELECT * FROM {} AS p",
        "SELECT * FROM orders o FULL JOIN {} AS p USING (region)",
        "WITH x AS (SELECT * FROM {} p) SELECT * FROM x",
    ):
        clause = f"policy FOR SYSTEM_TIME AS OF {time}"
        assert read(text.format(clause)).text == text.format(plain)


def test_a_table_may_be_read_as_of_several_times_in_one_query():
    text = """SELECT * FROM orders o
        JOIN Policy FOR SYSTEM_TIME AS OF o.a AS p ON o.r = p.r, -- FOR SYSTEM_TIME AS OF
        `policy` for system_time as of o.b q
        WHERE EXISTS (SELECT 1 FROM policy FOR SYSTEM_TIME AS OF o.c x WHERE x.r = o.r)"""
    assert (
        read(text).text
        == f"""SELECT * FROM orders o
        JOIN {versions("o.a", "Policy")} AS p ON o.r = p.r, -- FOR SYSTEM_TIME AS OF
        {versions("o.b", "`policy`")} q
        WHERE EXISTS (SELECT 1 FROM {versions("o.c", lateral=False)} x WHERE x.r = o.r)"""
    )


def test_every_place_the_user_wrote_is_found_again():
    text = """CREATE VIEW x AS SELECT rate * o.n FROM orders o
        LEFT JOIN policy FOR SYSTEM_TIME AS OF o.the_time AS p ON o.region = p.region WHERE nope"""
    start = text.index("SELECT")
    found = with_versions(Span(text, start, len(text)), _RELATIONS)
    for word in ("rate * o.n", "policy", "o.the_time", "p.region WHERE nope"):
        where = found.text.rindex(word) if word != "rate * o.n" else found.text.index(word)
        where = found.text.index("policy") if word == "policy" else where
        place = found.back(Span(found.text, where, where + len(word)))
        assert place.text is text
        assert place.source == word
        assert place.position[0] == (1 if word == "rate * o.n" else 2)
    window = found.text.index("lead(")
    clause = found.back(Span(found.text, window, window + 4)).source
    assert clause == "policy FOR SYSTEM_TIME AS OF o.the_time"


def test_an_error_of_spark_is_said_of_the_text_as_written():
    text = "SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.tss AS p ON o.region = p.r"
    found = read(text)
    at = found.text.rindex("p.r")
    with pytest.raises(HeadraceError) as caught, found.mapping_errors():
        raise HeadraceError(Code.INVALID, "no such column", span=Span(found.text, at, at + 3))
    assert str(caught.value.span).split("\n")[1].index("^") == 7 + text.rindex("p.r")
    elsewhere = Span("x", 0, 1)
    with pytest.raises(HeadraceError) as caught, found.mapping_errors():
        raise HeadraceError(Code.INVALID, "else", span=elsewhere)
    assert caught.value.span is elsewhere


REFUSED = """
SELECT * FROM plain FOR SYSTEM_TIME AS OF DATE '2024-01-01'
              ^^^^^
invalid: table "plain" has no versions
hint: Declare a table with PRIMARY KEY and WITH (effective_from = 'column'); or SELECT FROM AS_OF(TABLE pairs, plain).

SELECT * FROM policy o JOIN orders FOR SYSTEM_TIME AS OF o.since x ON true
                            ^^^^^^
invalid: stream "orders" has no versions
hint: Declare a table with PRIMARY KEY and WITH (effective_from = 'column').

SELECT * FROM orders o JOIN v FOR SYSTEM_TIME AS OF o.since x ON true
                            ^
invalid: view "v" has no versions
hint: Declare a table with PRIMARY KEY and WITH (effective_from = 'column'); or SELECT FROM AS_OF(TABLE pairs, v).

SELECT * FROM orders o JOIN polcy FOR SYSTEM_TIME AS OF o.since x ON true
                            ^^^^^
invalid: stream, table or view "polcy" does not exist
hint: Did you mean "policy"?

WITH policy AS (SELECT 1) SELECT * FROM policy FOR SYSTEM_TIME AS OF DATE '2024-01-01'
                                        ^^^^^^
invalid: common table expression "policy" has no versions
hint: Use FOR SYSTEM_TIME AS OF inside it, at the versioned table that it reads.

SELECT * FROM orders o JOIN policy p FOR SYSTEM_TIME AS OF o.since ON true
                                   ^
invalid: the alias p is before FOR SYSTEM_TIME AS OF
hint: Write it after the time: name FOR SYSTEM_TIME AS OF time AS p.

SELECT * FROM orders o JOIN policy AS p FOR SYSTEM_TIME AS OF o.since ON true
                                      ^
invalid: the alias p is before FOR SYSTEM_TIME AS OF
hint: Write it after the time: name FOR SYSTEM_TIME AS OF time AS p.

SELECT * FROM (SELECT 1) FOR SYSTEM_TIME AS OF o.since
                         ^^^^^^^^^^^^^^^^^^^^^
invalid: FOR SYSTEM_TIME AS OF must follow the name of a table
hint: Write FROM name FOR SYSTEM_TIME AS OF time AS alias.

SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF ON o.region = policy.region
                                                         ^^
invalid: expected a time, found "ON"
hint: It is a column such as o.ts, or TIMESTAMP '...'.

SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.since - ON true
                                                                   ^^
invalid: expected a time, found "ON"
hint: It is a column such as o.ts, or TIMESTAMP '...'.

SELECT * FROM policy FOR SYSTEM_TIME AS OF
                                          ^
invalid: expected a time, found the end of the statement
hint: It is a column such as o.ts, or TIMESTAMP '...'.

SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.region = p.region
                                                         ^^^^^^^^
unsupported: FOR SYSTEM_TIME AS OF the time of processing, PROCTIME, is not supported
hint: Use a time in the data, such as that of the event, which does not change later.

SELECT * FROM policy FOR SYSTEM_TIME AS OF date_trunc('DAY', current_timestamp)
                                                             ^^^^^^^^^^^^^^^^^
unsupported: FOR SYSTEM_TIME AS OF the time of processing, CURRENT_TIMESTAMP, is not supported
hint: Use a time in the data, such as that of the event, which does not change later.

SELECT * FROM orders o RIGHT JOIN policy FOR SYSTEM_TIME AS OF o.since p ON true
                       ^^^^^^^^^^
unsupported: RIGHT JOIN with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use JOIN or LEFT JOIN, with the versioned table on the right.

SELECT * FROM orders o FULL OUTER JOIN policy FOR SYSTEM_TIME AS OF o.since p ON true
                       ^^^^^^^^^^^^^^^
unsupported: FULL JOIN with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use JOIN or LEFT JOIN, with the versioned table on the right.

SELECT * FROM orders o LEFT ANTI JOIN policy FOR SYSTEM_TIME AS OF o.since p ON true
                            ^^^^^^^^^
unsupported: ANTI JOIN with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use WHERE NOT EXISTS (SELECT 1 FROM ... FOR SYSTEM_TIME AS OF ... WHERE ...).

SELECT * FROM orders o NATURAL LEFT JOIN policy FOR SYSTEM_TIME AS OF o.since p
                       ^^^^^^^^^^^^^^^^^
unsupported: NATURAL JOIN with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use ON, and name the columns that must be equal.

SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.since AS p USING (region)
                                                                      ^^^^^
unsupported: USING with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use ON, with both columns: ON ... = p.region.

SELECT * FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.since USING (region)
                                                                 ^^^^^
unsupported: USING with FOR SYSTEM_TIME AS OF a column is not supported
hint: Use ON, with both columns: ON ... = policy.region.

SELECT * FROM policy FOR SYSTEM_TIME BETWEEN DATE '2024-01-01' AND DATE '2024-02-01'
                     ^^^^^^^^^^^^^^^^^^^^^^^
unsupported: FOR SYSTEM_TIME BETWEEN is not supported
hint: Read the table itself: it has all versions, each with its date.

SELECT * FROM policy FOR SYSTEM_TIME ALL
                     ^^^^^^^^^^^^^^^^^^^
unsupported: FOR SYSTEM_TIME ALL is not supported
hint: Read the table itself: it has all versions, each with its date.
"""
BLOCKS = [block.split("\n") for block in REFUSED.strip().split("\n\n")]


@pytest.mark.parametrize("block", BLOCKS, ids=[block[0] for block in BLOCKS])
def test_what_has_no_versions_is_refused_at_its_place_with_a_hint(block):
    with pytest.raises(HeadraceError) as caught:
        read(block[0])
    error = caught.value
    carets = str(error.span).split("\n")[1][7:]
    assert [block[0], carets, f"{error.code}: {error.primary}", f"hint: {error.hint}"] == block
