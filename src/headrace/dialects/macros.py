"""Calls of functions by CREATE FUNCTION, replaced by their bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalog import FUNCTION_VIEW, PlainView
from headrace.dialects.tree import Group, is_group, split_at, tree_of
from headrace.errors import Code, HeadraceError, Span
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import StatementText
from headrace.sql.macros import called_with, function_of, uses
from headrace.sql.rewritten import Rewriting, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.catalog import Relation
    from headrace.dialects.tree import Node
    from headrace.sql.macros import CreateFunction
    from headrace.sql.rewritten import Rewritten
    from headrace.types import RelationId

_LONGEST = 200_000
"""The most characters that a call may expand to: nested calls grow fast."""

_CHANCE = frozenset(
    """
    GEN_RANDOM_UUID GENERATE_UUID MONOTONICALLY_INCREASING_ID RAND RANDN RANDOM RANDSTR SHUFFLE
    UNIFORM UUID UUID_STRING
    """.split()  # noqa: SIM905
)
"""The functions whose value differs between calls."""


def with_macros(query: Span, relations: Mapping[str, Relation]) -> Rewritten:
    """Return a query in which the calls of SQL functions are replaced by their bodies.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the call, if it cannot be replaced.
    """
    functions = _functions(relations)
    nodes = _nodes(query) if functions else ()
    calls = list(_calls(nodes, functions))
    if not calls:
        return unchanged(query)
    rewriting = Rewriting(query)
    at = query.start
    for name, group in calls:
        text = _replaced(query, name, group, functions)
        if name.start > at:
            rewriting.copy(at, name.start)
        rewriting.put(text, name.start, group.end)
        at = group.end
    if at < query.end:
        rewriting.copy(at, query.end)
    return rewriting.done()


def macros_of(query: Span, relations: Mapping[str, Relation]) -> tuple[RelationId, ...]:
    """Return the plain views of the SQL functions that a query calls, also through others."""
    functions = _functions(relations)
    found: dict[RelationId, None] = {}
    for name, _ in _all_calls(_nodes(query) if functions else (), functions):
        view = functions[name.word.lower()]
        found |= dict.fromkeys((*view.through, view.id))
    return tuple(found)


def _functions(relations: Mapping[str, Relation]) -> dict[str, PlainView]:
    return {
        name.removeprefix(FUNCTION_VIEW): relation
        for name, relation in relations.items()
        if name.startswith(FUNCTION_VIEW) and isinstance(relation, PlainView)
    }


def _nodes(query: Span) -> tuple[Node, ...]:
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    return tree_of(cursor.tokens[:-1], query) or ()


def _calls(
    nodes: Sequence[Node], functions: Mapping[str, PlainView]
) -> Iterator[tuple[Node, Group]]:
    """Yield the outermost calls of functions, each as name and parentheses."""
    for at, node in enumerate(nodes):
        called = _is_call(nodes, at, functions)
        if called is not None:
            yield node, called
        elif isinstance(node, Group) and (not at or _is_call(nodes, at - 1, functions) is None):
            yield from _calls(node.inside, functions)


def _all_calls(
    nodes: Sequence[Node], functions: Mapping[str, PlainView]
) -> Iterator[tuple[Node, Group]]:
    for name, group in _calls(nodes, functions):
        yield name, group
        yield from _all_calls(group.inside, functions)


def _is_call(nodes: Sequence[Node], at: int, functions: Mapping[str, PlainView]) -> Group | None:
    following = nodes[at + 1] if at + 1 < len(nodes) else None
    if nodes[at].word.lower() not in functions or not isinstance(following, Group):
        return None
    qualified = at > 0 and nodes[at - 1].text == "."
    return following if is_group(following) and not qualified else None


def _replaced(query: Span, name: Node, group: Group, functions: Mapping[str, PlainView]) -> str:
    """Return the text for a call, in which all nested calls are replaced too."""
    function = function_of(functions[name.word.lower()].created_sql)
    place = Span(query.text, name.start, group.end, query.file, query.line)
    arguments = split_at(group.inside)
    if len(arguments) != len(function.parameters):
        raise HeadraceError(
            Code.INVALID,
            f'function "{function.name.dotted}" is called with {len(arguments)} arguments instead'
            f" of {len(function.parameters)}",
            hint=f"Write {function.signature.partition(' RETURNS')[0]}.",
            span=place,
        )
    for which, argument in enumerate(arguments):
        if uses(function, which) > 1 and _has_chance(argument):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a random argument of function "{function.name.dotted}", which uses it more'
                " than once, is not supported",
                hint="Compute it in a subquery, and call the function over that.",
                span=place,
            )
    text = called_with(function, [_written(query, argument, functions) for argument in arguments])
    _check_length(text, function, place)
    while True:
        whole = Span.whole(text)
        further = list(_calls(_nodes(whole), functions))
        if not further:
            return text
        for inner, inside in reversed(further):
            with_inner = _replaced(whole, inner, inside, functions)
            text = text[: inner.start] + with_inner + text[inside.end :]
            _check_length(text, function, place)


def _check_length(text: str, function: CreateFunction, place: Span) -> None:
    if len(text) > _LONGEST:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'a call of function "{function.name.dotted}" of more than {_LONGEST:,} characters is'
            " not supported",
            detail="The body of a function stands in place of each call.",
            hint="Compute its arguments in subqueries, step by step.",
            span=place,
        )


def _written(query: Span, nodes: Sequence[Node], functions: Mapping[str, PlainView]) -> str:
    """Return the text of some nodes, with the calls in it replaced."""
    if not nodes:
        return ""
    text, at = "", nodes[0].start
    for name, group in _calls(nodes, functions):
        text += query.text[at : name.start] + _replaced(query, name, group, functions)
        at = group.end
    return text + query.text[at : nodes[-1].end]


def _has_chance(nodes: Sequence[Node]) -> bool:
    return any(
        _has_chance(node.inside) if isinstance(node, Group) else node.word in _CHANCE
        for node in nodes
    )
