"""Lineage through several relations, without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType

from headrace.planning.catalog import Catalog, Sink, Table
from headrace.planning.catalog.lineage import (
    NO_LINEAGE,
    Influence,
    LineageColumn,
    RelationLineage,
    downstream,
    of_sink,
    of_written,
    seen_through,
    upstream,
)
from headrace.types import Column, RelationId, Schema

TABLE, FIRST, SECOND = RelationId(1), RelationId(2), RelationId(3)


def influences(*given):
    found = {}
    for relation, column, how, *path in given:
        key = LineageColumn(relation, column, tuple(path))
        found[key] = found.get(key, frozenset()) | {Influence(how)}
    return found


LINEAGES = {
    TABLE: NO_LINEAGE,
    FIRST: RelationLineage(
        {
            "a": influences((TABLE, "x", "identity")),
            "s": influences((TABLE, "st", "identity", "in")),
            "c": influences((TABLE, "x", "transformation"), (TABLE, "y", "conditional")),
        },
        influences((TABLE, "z", "filter")),
        frozenset((TABLE,)),
    ),
    SECOND: RelationLineage(
        {
            "total": influences((FIRST, "c", "aggregation")),
            "field": influences((FIRST, "s", "identity", "deep")),
            "n": {},
        },
        influences((FIRST, "a", "group_by")),
        frozenset((FIRST,)),
    ),
}


def listed(relation):
    return [
        f"{each.column or '*'} {each.input.relation}.{each.input.dotted} {each.influence} {each.distance}"
        for each in upstream(LINEAGES.__getitem__, relation)
    ]


def test_influences_are_followed_through_views_and_keep_what_changes_most():
    assert listed(SECOND) == [
        "total 2.c aggregation 1",
        "total 1.x aggregation 2",
        "total 1.y conditional 2",
        "field 2.s.deep identity 1",
        "field 1.st.in.deep identity 2",
        "* 2.a group_by 1",
        "* 1.x group_by 2",
        "* 1.z filter 2",
    ]


def test_an_input_of_which_no_column_is_named_is_an_input():
    counted = {**LINEAGES, SECOND: RelationLineage({"n": {}}, reads=frozenset((FIRST,)))}
    found = list(upstream(counted.__getitem__, SECOND))
    assert [(e.input.relation, e.input.column, e.influence) for e in found] == [
        (TABLE, "z", Influence.FILTER),
        (FIRST, "*", Influence.ROWS),
    ]


def test_hidden_inputs_are_replaced_by_theirs():
    found = seen_through(LINEAGES.__getitem__, SECOND, lambda each: each == FIRST)
    assert found.columns["total"] == influences(
        (TABLE, "x", "aggregation"), (TABLE, "y", "conditional")
    )
    assert found.rows == influences((TABLE, "x", "group_by"), (TABLE, "z", "filter"))
    assert found.reads == {TABLE}


def table(number, name, *columns):
    schema = Schema(tuple(Column(each, IntegerType()) for each in columns))
    return Table(RelationId(number), name, schema)


def test_a_circle_through_sinks_ends_and_each_member_depends_on_itself():
    one, two = table(1, "one", "a"), table(2, "two", "b")
    there = Sink(RelationId(3), "there", one.schema, RelationId(1), RelationId(2), ("b",))
    back = Sink(RelationId(4), "back", two.schema, RelationId(2), RelationId(1), ("a",))
    lineages = {1: of_written([back]), 2: of_written([there]), 3: of_sink(there), 4: of_sink(back)}
    found = list(upstream(lineages.__getitem__, RelationId(1)))
    assert [(each.input.relation, each.distance) for each in found] == [
        (4, 1),
        (2, 2),
        (3, 3),
        (1, 4),
    ]
    above = downstream(lineages.__getitem__, Catalog((one, two, there, back)), RelationId(1))
    assert {each.relation for each in above} == {2, 3, 4}


@pytest.mark.parametrize(
    ("step", "below", "both"),
    [
        ("identity", "identity", "identity"),
        ("identity", "aggregation", "aggregation"),
        ("aggregation", "transformation", "aggregation"),
        ("transformation", "filter", "filter"),
        ("join", "aggregation", "join"),
        ("join", "filter", "join"),
    ],
)
def test_an_influence_after_another(step, below, both):
    assert Influence(step).after(Influence(below)) is Influence(both)
