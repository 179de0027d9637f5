"""Spark's window nodes, including those that it makes of ``LIMIT`` in correlated subqueries.

Spark computes such a subquery for all outer rows at once, and selects its first rows by
``row_number()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.clock import conjuncts
from headrace.catalyst.scala import items, kind_of, part, references

if TYPE_CHECKING:
    from headrace.catalyst.pieces import Pieces
    from headrace.errors import HeadraceError


def functions_alone(pieces: Pieces, node: Any) -> Any:
    """Return a ``Window`` without the input columns that Spark lists among its functions.

    Columns by which a correlated subquery is joined occur twice.

    Raises:
        HeadraceError: ``unsupported`` if rows are numbered without an order.
    """
    given = items(node.windowExpressions())
    functions = [each for each in given if kind_of(each) == "Alias"]
    if _leaves_to_chance(node, functions):
        raise without_order(pieces, node)
    if len(functions) == len(given):
        return node
    others = [part(node, position) for position in range(1, node.productArity())]
    return pieces.scala.logical("Window", pieces.scala.seq(functions), *others)


def numbers_all_rows(node: Any) -> bool:
    """Return whether a node only numbers all rows, in an order, by ``row_number()``.

    Spark limits such a node if a filter above it keeps the first numbers.
    """
    return (
        kind_of(node) == "Window"
        and not node.partitionSpec().length()
        and node.orderSpec().length() > 0
        and all(kind_of(e) == "Alias" and _is_number(e) for e in items(node.windowExpressions()))
    )


def first_without_numbers(node: Any) -> Any | None:
    """Return the window below a projection that shows the first rows of groups, or None.

    Spark limits the rows below such a window to the first ones. The function that numbers them is
    then needed only by the filter, which is true for all of them.
    """
    filtered = node.child()
    window = filtered.child() if kind_of(filtered) == "Filter" else filtered
    limited = window.child() if kind_of(window) == "Window" else window
    if tuple(map(kind_of, (filtered, window, limited))) != ("Filter", "Window", "WindowGroupLimit"):
        return None
    function, *others = items(window.windowExpressions())
    if others or kind_of(function) != "Alias":
        return None
    called, ranked = function.child(), kind_of(limited.rankLikeFunction())
    if kind_of(called) != "WindowExpression" or kind_of(called.windowFunction()) != ranked:
        return None
    same = window.partitionSpec().equals(limited.partitionSpec())
    if not same or not window.orderSpec().equals(limited.orderSpec()):
        return None
    number, most = int(function.exprId().id()), int(limited.limit())
    shown = any(number in references(each) for each in items(node.projectList()))
    conditions = conjuncts(filtered.condition())
    if shown or not all(_holds_up_to(each, number, most) for each in conditions):
        return None
    return window


_FLIPPED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "EqualTo": "EqualTo",
}


def _holds_up_to(condition: Any, number: int, most: int) -> bool:
    """Whether a condition only compares a number, and holds from 1 to ``most``."""
    name = kind_of(condition)
    if name not in _FLIPPED:
        return False
    left, right = condition.left(), condition.right()
    if kind_of(left) == "Literal":
        left, right, name = right, left, _FLIPPED[name]
    is_column = _is_column(left) and int(left.exprId().id()) == number
    if not is_column or kind_of(right) != "Literal" or right.value() is None:
        return False
    bound = int(right.value())
    return {
        "LessThan": most < bound,
        "LessThanOrEqual": most <= bound,
        "EqualTo": most == bound == 1,
    }.get(name, False)


def without_order(pieces: Pieces, node: Any) -> HeadraceError:
    """Return the refusal of a ``LIMIT`` without an order."""
    return pieces.unsupported(
        "LIMIT without ORDER BY is not supported in a view",
        "Without an order, any of the rows could be chosen. Add ORDER BY with columns whose values"
        " can be compared.",
        node,
    )


def _leaves_to_chance(node: Any, functions: list[Any]) -> bool:
    """Return whether rows are numbered without an order, and those of a partition may differ."""
    if not any(map(_is_number, functions)) or node.orderSpec().length():
        return False
    partition = {e.exprId().id() for e in items(node.partitionSpec()) if _is_column(e)}
    unique = [items(keys.toSeq()) for keys in items(node.child().distinctKeys().toSeq())]
    return not any(
        {e.exprId().id() for e in columns if _is_column(e)} <= partition
        for columns in (items(node.child().output()), *unique)
    )


def _is_number(function: Any) -> bool:
    """Return whether a column is ``row_number()``; decimals may add functions around it."""
    window = function.child()
    return kind_of(window) == "WindowExpression" and kind_of(window.windowFunction()) == "RowNumber"


def _is_column(expression: Any) -> bool:
    return kind_of(expression) == "AttributeReference"
