"""A slice of an input is carried to a view only where no row with other values can change."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pyspark.sql.types import LongType

from headrace.planning.catalyst import plan
from headrace.planning.catalyst.plan import JoinKind
from headrace.planning.circuit.sharing import _carried
from headrace.types import RelationId

_ids = count()
MINE, OTHER = RelationId(1), RelationId(2)


def attribute(name: str) -> plan.Attribute:
    return plan.Attribute(next(_ids), name, LongType(), nullable=True, handle=None)


def scan(relation: RelationId = MINE) -> plan.Scan:
    return plan.Scan(relation, (attribute("a"), attribute("b")), (0, 1))


def passing(each: plan.Attribute) -> plan.Expression:
    return plan.Expression(each.name, LongType(), each.id, each.id, None)


def computed() -> plan.Expression:
    return plan.Expression("x + 1", LongType(), next(_ids), None, None)


def names(node: plan.Plan) -> dict[int, list[str]]:
    """By column of the input, the names of the attributes that carry it."""
    by_id = {each.id: each.name for each in node.attributes}
    found = _carried(node, MINE) or {}
    return {column: [by_id[id_] for id_ in ids] for column, ids in found.items() if ids}


def test_a_projection_carries_what_it_passes_on() -> None:
    below = scan()
    out = (attribute("x"), attribute("y"), attribute("z"))
    kept, other = passing(below.attributes[1]), computed()
    node = plan.Filter(plan.Project(below, (kept, other, kept), out), computed())
    assert {column: sorted(of) for column, of in names(node).items()} == {1: ["x", "z"]}


def test_an_aggregate_carries_its_keys() -> None:
    below = scan()
    key, total = attribute("key"), attribute("total")
    node = plan.Aggregate(
        below, (passing(below.attributes[0]),), (key,), (), (passing(key), computed()), (key, total)
    )
    assert names(node) == {0: ["key"]}
    assert names(plan.Aggregate(below, (), (), (), (computed(),), (total,))) == {}


def test_windows_and_first_rows_carry_what_they_are_divided_by() -> None:
    below = scan()
    by = (passing(below.attributes[1]),)
    assert names(plan.FirstRows(below, by, (), "rank", 1, 0)) == {1: ["b"]}
    assert names(plan.FirstRows(below, (), (), "rank", 1, 0)) == {}
    out = (*below.attributes, attribute("sum"))
    assert names(plan.Window(below, by, "", None, out)) == {1: ["b"]}


@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize("left", [True, False])
def test_a_join_carries_the_side_whose_rows_alone_change(kind: JoinKind, left: bool) -> None:  # noqa: FBT001
    mine, other = scan(), scan(OTHER)
    flag = attribute("flag") if kind is JoinKind.EXISTENCE else None
    sides: Any = (mine, other) if left else (other, mine)
    node = plan.Join(kind, *sides, (), (), None, flag)
    # A change of the other side of an outer join also changes the rows that have no match.
    kinds = (
        {JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE}
        if left
        else {JoinKind.INNER, JoinKind.RIGHT}
    )
    assert names(node) == ({0: ["a"], 1: ["b"]} if kind in kinds else {})
    both = plan.Join(kind, scan(), scan(), (), (), None, flag)
    assert names(both) == {}


def test_a_union_carries_what_all_its_inputs_carry() -> None:
    first, second, apart = scan(), scan(), scan(OTHER)
    out = (attribute("x"), attribute("y"))
    assert names(plan.UnionAll((first, second, apart), out)) == {0: ["x"], 1: ["y"]}
    swapped = plan.Project(
        second, tuple(map(passing, reversed(second.attributes))), (attribute("b"), attribute("a"))
    )
    assert names(plan.UnionAll((first, swapped), out)) == {}


def test_what_is_not_known_carries_nothing_and_what_reads_nothing_is_no_limit() -> None:
    below = scan()
    expanded = plan.Expand(below, (), (attribute("x"),))
    assert _carried(expanded, MINE) == {}
    assert _carried(plan.Expand(scan(OTHER), (), ()), MINE) is None
    assert (
        _carried(plan.Compared(scan(OTHER), below, computed(), computed(), below=True), MINE) == {}
    )
