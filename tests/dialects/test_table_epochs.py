"""``FROM orders VERSION AS OF 17``: the query that Spark is given, and what is refused where."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.errors import HeadraceError, Span
from headrace.planning.catalog import PlainView, Stream, Table, View
from headrace.planning.dialects import with_epochs
from headrace.planning.sql import AsOfEpoch, ChangesBetween
from headrace.types import RelationId, Schema

_SCHEMA = Schema.of_spark(StructType([StructField(name, IntegerType()) for name in ("id", "x")]))
_RELATIONS = {
    "orders": Table(RelationId(1), "orders", _SCHEMA, ("id",)),
    "policy": Table(RelationId(2), "policy", _SCHEMA, ("id", "x"), "x"),
    "events": Stream(RelationId(3), "events", _SCHEMA),
    "gold.total": View(RelationId(4), "gold.total", _SCHEMA, "SELECT ...", ()),
    "plain": PlainView(RelationId(5), "plain", _SCHEMA, "SELECT ...", (), ()),
}


def taken(query: str):
    return with_epochs(Span(query, 0, len(query)), _RELATIONS, "__")


@pytest.mark.parametrize(
    ("clause", "as_of"),
    [
        ("VERSION AS OF 7", 7),
        ("version as of '7'", 7),
        ("FOR VERSION AS OF 7", 7),
        ("FOR SYSTEM_VERSION AS OF 7", 7),
        ("AS OF EPOCH 7", 7),
        ("TIMESTAMP AS OF '2026-01-01 00:00'", "2026-01-01 00:00"),
        ("FOR TIMESTAMP AS OF TIMESTAMP '2026-01-01'", "2026-01-01"),
        ("FOR SYSTEM_TIME AS OF DATE '2026-01-01'", "2026-01-01"),
        ("AS OF TIMESTAMP '2026-01-01'", "2026-01-01"),
    ],
)
@pytest.mark.parametrize(
    ("name", "alias", "new"),
    [
        ("orders", "", "`__0` AS `orders`"),
        ("Gold.Total", " t", "`__0` t"),
        ("`orders`", " AS o", "`__0` AS o"),
    ],
)
def test_a_name_stands_for_a_table_at_an_epoch(clause, as_of, name, alias, new):
    found = taken(f"SELECT * FROM {name} {clause}{alias} WHERE x > 1")
    assert found.query.text == f"SELECT * FROM {new} WHERE x > 1"
    assert found.as_now.source == f"SELECT * FROM {name}{alias} WHERE x > 1"
    (table,) = found.tables
    assert table.relation.name == name.lower().strip("`")
    assert (moment(table.read), table.read.span.source.upper()) == (as_of, clause.upper())


def moment(as_of):
    return as_of.epoch if isinstance(as_of, AsOfEpoch) else as_of.timestamp


@pytest.mark.parametrize(
    ("clause", "after", "upto"),
    [
        ("FOR CHANGES BETWEEN EPOCH 3 AND 7", 3, 7),
        ("for changes between epoch 3 and epoch 7", 3, 7),
        ("FOR CHANGES BETWEEN TIMESTAMP '2026-01-01' AND '2026-02-01'", "2026-01-01", "2026-02-01"),
        ("FOR CHANGES BETWEEN EPOCH 3 AND TIMESTAMP '2026-02-01'", 3, "2026-02-01"),
        ("FOR CHANGES FROM EPOCH 3 TO 7", 3, 7),
        ("FOR CHANGES FROM EPOCH 3", 3, None),
        ("FOR CHANGES FROM TIMESTAMP '2026-01-01'", "2026-01-01", None),
    ],
)
def test_a_name_stands_for_the_changes_of_a_range_of_epochs(clause, after, upto):
    found = taken(f"SELECT * FROM orders {clause} AS c JOIN Gold.Total ON c.x = 1 WHERE x < 2")
    assert found.query.text == "SELECT * FROM `__0` AS c JOIN Gold.Total ON c.x = 1 WHERE x < 2"
    (table,) = found.tables
    assert isinstance(table.read, ChangesBetween)
    assert moment(table.read.after) == after
    assert (table.read.upto and moment(table.read.upto)) == upto
    assert table.read.span.source == clause


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM policy FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01'",
        "SELECT * FROM events e JOIN policy FOR SYSTEM_TIME AS OF e.x AS p ON p.id = e.id",
        "SELECT * FROM events e JOIN orders FOR SYSTEM_TIME AS OF e.x AS o ON o.id = e.id",
        "SELECT x AS of, 7 FROM orders",
        "SELECT substring(x FROM 1 FOR changes) FROM orders",
        "SELECT 'VERSION AS OF 7' FROM orders -- AS OF EPOCH 7",
    ],
)
def test_what_chooses_versions_or_only_looks_alike_stays(query):
    found = taken(query)
    assert (found.tables, found.query.text, found.as_now.source) == ((), query, query)


@pytest.mark.parametrize(
    ("query", "place", "hint"),
    [
        ("SELECT * FROM plain VERSION AS OF 7", "plain", "Use AS OF at the tables"),
        ("SELECT * FROM events VERSION AS OF 7", "events", "Tables and views can be read"),
        ("SELECT * FROM ordes VERSION AS OF 7", "ordes", 'Did you mean "orders"?'),
        ("SELECT * FROM orders o VERSION AS OF 7", "o", "Write it after the time"),
        ("WITH o AS (SELECT 1) SELECT * FROM o VERSION AS OF 7", "o", "Use AS OF inside it"),
        ("SELECT * FROM orders TIMESTAMP AS OF now()", "now()", "or name an epoch"),
        ("SELECT * FROM orders VERSION AS OF latest", "latest", "SHOW EPOCHS lists"),
        ("SELECT * FROM orders VERSION AS OF -1", "-1", "SHOW EPOCHS lists"),
        ("SELECT * FROM orders AS OF EPOCH -1", "-1", "SHOW EPOCHS lists"),
        ("SELECT * FROM orders FOR CHANGES FROM EPOCH -1", "-1", "SHOW EPOCHS lists"),
        ("SELECT * FROM events FOR CHANGES FROM EPOCH 1", "events", "only has insertions"),
        ("SELECT * FROM plain FOR CHANGES FROM EPOCH 1", "plain", "Use FOR CHANGES at the"),
    ],
)
def test_what_cannot_be_read_so_is_refused_at_its_place(query, place, hint):
    with pytest.raises(HeadraceError) as caught:
        taken(query)
    assert hint in caught.value.hint
    assert caught.value.span.source == place
