"""What nodes of a plan answer, and that passes serve a node that they do not know."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, get_args

import pytest
from pyspark.sql.types import IntegerType

from headrace.planning.catalyst.node import DERIVED, INPUT, FieldRole, Node, over
from headrace.planning.catalyst.plan import (
    Attribute,
    Compared,
    Expand,
    Expression,
    Filter,
    FirstRows,
    Generate,
    Join,
    JoinKind,
    Plan,
    Project,
    Scan,
    Selection,
    SortKey,
    UnionAll,
    Window,
)
from headrace.planning.catalyst.rewrites import pruned
from headrace.types import RelationId


class Sequence:
    """A Scala ``Seq``."""

    def __init__(self, *found):
        self.found = found

    def toSeq(self):  # noqa: N802
        return self

    def length(self):
        return len(self.found)

    def apply(self, position):
        return self.found[position]


class Handle:
    """An expression of Catalyst that refers to attributes of some ids, or one of these."""

    def __init__(self, *ids):
        self.ids = ids

    def references(self):
        return Sequence(*map(Handle, self.ids))

    def exprId(self):  # noqa: N802
        return self

    def id(self):
        return self.ids[0]


class Catalyst:
    """A node of Catalyst with a generator, functions and an order."""

    def __init__(self, *given):
        self.given = given

    def generator(self):
        return self.given[0]

    def windowExpressions(self):  # noqa: N802
        return Sequence(self.given[0])

    def orderSpec(self):  # noqa: N802
        return Sequence(*self.given[1:])


def attribute(id_):
    return Attribute(id_, f"c{id_}", IntegerType(), nullable=True, handle=Handle(id_))


def expression(*ids, passes=None):
    return Expression(f"f{ids}", IntegerType(), ids, passes, Handle(*ids))


def scan(*ids):
    attributes = tuple(map(attribute, ids))
    return Scan(RelationId(1), attributes, tuple(range(len(ids))))


def read(plan):
    """The ids of the columns that each leaf reads."""
    if isinstance(plan, Scan):
        return [[a.id for a in plan.attributes]]
    return [ids for below in plan.inputs for ids in read(below)]


@pytest.mark.parametrize("kind", get_args(Plan), ids=lambda kind: kind.__name__)
def test_every_field_of_a_node_says_what_it_is(kind):
    roles = {each.name: each.metadata.get("role", FieldRole.PARAMETER) for each in fields(kind)}
    for each in fields(kind):
        role, type_ = roles[each.name], str(each.type)
        if any(name in type_ for name in ("Expression", "SortKey", "AggregateFunction")):
            assert role is FieldRole.EXPRESSIONS
        assert (role is FieldRole.INPUT) == ("Plan" in type_)
        if "Attribute" in type_ or each.name == "handle":
            assert role is FieldRole.DERIVED
        assert all(roles[name] is FieldRole.INPUT for name in each.metadata.get("over", ()))


def test_a_node_knows_its_expressions_and_what_they_read():
    left, right = scan(1, 2), scan(3, 4)
    one, other, rest = expression(1), expression(3), expression(2, 4)
    join = Join(JoinKind.LEFT, left, right, (one,), (other,), rest)
    assert join.inputs == (left, right)
    assert [(use.field, use.handle, use.inputs) for use in join.uses()] == [
        ("left_keys", one.handle, (left,)),
        ("right_keys", other.handle, (right,)),
        ("residual", rest.handle, (left, right)),
    ]
    assert [set(use.columns) for use in join.uses()] == [{1}, {3}, {2, 4}]
    assert join.parameters() == (JoinKind.LEFT,)
    assert join.passed() == (((1, 1), (2, 2)), ((3, 3), (4, 4)))
    assert join.rebuilt((right, left)).inputs == (right, left)
    assert left.rebuilt(()) is left


def test_an_order_says_how_it_sorts():
    keys = SortKey(expression(2), descending=True, nulls_first=False)
    first = FirstRows(scan(1, 2), (expression(1),), (keys,), "rank", 3, 0)
    assert [(use.field, use.how) for use in first.uses()] == [
        ("keys", ()),
        ("order", (True, False)),
    ]
    assert first.parameters() == ("rank", 3, 0)


def test_nodes_of_catalyst_are_asked_for_their_expressions():
    below, one, other = scan(1, 2), Handle(1), Handle(2)
    generate = Generate(
        below, "explode(c1)", outer=True, handle=Catalyst(one), attributes=(attribute(3),)
    )
    window = Window(below, (), "f(c1)", Catalyst(one, other), (attribute(3),))
    expand = Expand(below, ((one,), (other,)), (attribute(3),))
    for node, names in [
        (generate, ["handle"]),
        (window, ["functions", "order"]),
        (expand, ["projections"] * 2),
    ]:
        assert [use.field for use in node.uses()] == names
        assert {use.inputs for use in node.uses()} == {(below,)}
    assert generate.parameters() == (True,)
    assert [a.id for a in window.attributes] == [1, 2, 3]


def test_a_union_has_as_many_inputs_as_before():
    union = UnionAll((scan(1), scan(2), scan(3)), (attribute(4),))
    assert union.passed() == (((4, 1),), ((4, 2),), ((4, 3),))
    others = (scan(5), scan(6), scan(7))
    assert union.rebuilt(others).children == others


def test_columns_that_nothing_needs_are_not_read():
    condition = Filter(scan(1, 2, 3), expression(2))
    shown = (expression(1, passes=1),)
    assert read(pruned(Project(condition, shown, (attribute(1),)))) == [[1, 2]]
    semi = Join(JoinKind.SEMI, scan(1, 2, 3), scan(4, 5), (expression(1),), (expression(4),), None)
    assert read(pruned(Project(semi, shown, (attribute(1),)))) == [[1], [4]]
    value = Project(scan(7, 8), (expression(7, passes=7),), (attribute(7),))
    compared = Compared(scan(1, 2, 3), value, expression(2), expression(2, 7), below=True)
    assert read(pruned(Project(compared, shown, (attribute(1),)))) == [[1, 2], [7]]


@dataclass(frozen=True, slots=True, eq=False)
class Sampled(Selection):
    """A node that no pass knows: some rows, by the hash of an expression."""

    by_row: ClassVar[bool] = True

    by: Expression = field(metadata=over("child"))
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Shuffled(Node):
    """A node that no pass knows, and that answers nothing by itself."""

    child: Plan = field(metadata=INPUT)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)


def test_a_node_that_no_pass_knows_has_its_columns():
    shown = (expression(1, passes=1),)
    sampled = Sampled(scan(1, 2, 3), expression(2), 0.5)
    assert sampled.parameters() == (0.5,)
    assert read(pruned(Project(sampled, shown, (attribute(1),)))) == [[1, 2]]
    below = scan(1, 2, 3)
    shuffled = Shuffled(below, below.attributes)
    assert read(pruned(Project(shuffled, shown, (attribute(1),)))) == [[1, 2, 3]]
