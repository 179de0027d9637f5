"""Spark's window nodes, including those that it makes of ``LIMIT`` in correlated subqueries.

Spark computes such a subquery for all outer rows at once, and selects its first rows by
``row_number()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.scala import items, kind_of, part

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
