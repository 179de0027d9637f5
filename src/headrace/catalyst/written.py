"""Where names stand in the text of a query, by what they mean: Spark's parser knows their places.

A parsed query has the variables of lambdas apart from columns, and relations apart from what WITH
names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalyst.bound import bound_column
from headrace.catalyst.fence import name_of, nodes, origin
from headrace.catalyst.scala import items, node_name
from headrace.sql.edits import is_name
from headrace.sql.lexer import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from headrace.catalyst.bound import BoundExpression
    from headrace.catalyst.fence import CheckedNode
    from headrace.errors import Span
    from headrace.sql import Rewritten

_TABLE: Final = re.compile(r"\bTABLE\s*$", re.IGNORECASE)
_LAMBDA: Final = "LambdaFunction"
_VARIABLE: Final = "UnresolvedNamedLambdaVariable"


@dataclass(frozen=True, slots=True)
class RelationPlace:
    """A place where a query reads a relation by its dotted name.

    ``is_named``: whether another name for it follows, or none can.
    """

    name: str
    span: Span
    is_named: bool


@dataclass(frozen=True, slots=True)
class WrittenNames:
    """Finds the places of names in queries, and what an expression computes whatever they are.

    ``reading`` yields a query after each of its two rewritings for Spark. The second is parsed by
    ``parsed``, which also returns the relations that it names, and resolved by ``executed``.
    """

    reading: Callable[[Span], AbstractContextManager[tuple[Rewritten, Rewritten]]]
    parsed: Callable[[Rewritten], tuple[Any, set[str]]]
    executed: Callable[[Rewritten], Any]

    def bound(self, query: Span) -> BoundExpression | None:
        """Return the only column of a query over a list of columns, by their positions in it.

        None if Spark does not compute it from a row alone, or does not say how.
        """
        with self.reading(query) as (_, plain):
            return bound_column(self.executed(plain).analyzed())

    def variables(self, query: Span, name: str) -> list[Span]:
        """Return the places in a query where lambdas declare or read a variable of a name."""
        with self.reading(query) as (read, plain):
            found = variables(self.parsed(plain)[0], plain.span, name)
            return [_back(read, plain, span) for span in found]

    def columns(self, query: Span, name: str) -> list[Span]:
        """Return the places of names in a query that may mean a column of a name."""
        with self.reading(query) as (read, plain):
            found = columns(self.parsed(plain)[0], plain.span, name)
            return [_back(read, plain, span) for span in found]

    def places(self, query: Span, relation: str) -> list[RelationPlace]:
        """Return the places in a query where it reads a relation by its dotted name."""
        with self.reading(query) as (read, plain):
            return [
                replace(each, span=_back(read, plain, each.span))
                for each in relations_in(nodes(self.parsed(plain)[0]), plain.span)
                if each.name == relation
            ]


def _back(read: Rewritten, plain: Rewritten, span: Span) -> Span:
    """Return the place in a query of one in its text for Spark, after both rewritings."""
    if plain.pieces:
        span = plain.back(span)
    return read.back(span) if read.pieces else span


def relations_in(parsed: Iterable[CheckedNode], query: Span) -> list[RelationPlace]:
    """Return the places where the nodes of a parsed query read relations, in order."""
    found: dict[int, tuple[str, Span]] = {}
    named: set[int] = set()
    for node in parsed:
        if node.kind == "SubqueryAlias":
            (child,) = node.below
            if node_name(child) == "UnresolvedRelation":
                named.add(origin(child, query).start)
        elif node.kind == "UnresolvedRelation":
            span = origin(node.handle, query)
            found[span.start] = name_of(node.handle), span
    return [
        RelationPlace(name, span, start in named or bool(_TABLE.search(query.text[:start])))
        for start, (name, span) in sorted(found.items())
    ]


def columns(parsed: Any, query: Span, name: str) -> list[Span]:
    """Return the places of names, of one or more parts, that may mean a column of a name."""
    found: dict[int, Span] = {}
    for node in nodes(parsed):
        for expression in items(node.handle.expressions()):
            for named in _named(expression, frozenset()):
                if name.lower() in _parts(named):
                    span = origin(named, query)
                    found[span.start] = span
    return [span for _, span in sorted(found.items())]


def _named(expression: Any, hidden: frozenset[str]) -> Iterator[Any]:
    """Yield the names in an expression that are not variables, which are ``hidden`` below."""
    kind = node_name(expression)
    if kind == _LAMBDA:
        yield from _named(expression.function(), hidden.union(_declared(expression)))
    elif kind == "UnresolvedAttribute" or (
        kind == _VARIABLE and _parts(expression)[0] not in hidden
    ):
        yield expression
    else:
        for child in items(expression.children()):
            yield from _named(child, hidden)


def variables(parsed: Any, query: Span, name: str) -> list[Span]:
    """Return the places where lambdas of a parsed query declare or read a variable of a name."""
    found: dict[int, Span] = {}
    for node in nodes(parsed):
        for expression, kind in node.expressions:
            if kind == _LAMBDA:
                for span in _in_lambda(expression, query, name.lower()):
                    found[span.start] = span
    return [span for _, span in sorted(found.items())]


def _in_lambda(function: Any, query: Span, name: str) -> Iterator[Span]:
    """Yield the places of a variable that a lambda declares, or none if it declares no such one."""
    if name not in _declared(function):
        return
    whole = origin(function, query)
    for token in tokens(whole.source):
        if token.text == "->":
            break
        if is_name(token, name):
            yield _within(whole, token.start, token.end)
    yield from _read(function.function(), query, name)


def _declared(function: Any) -> list[str]:
    return [_parts(each)[0] for each in items(function.arguments())]


def _parts(name: Any) -> list[str]:
    return [str(part).lower() for part in items(name.nameParts())]


def _read(expression: Any, query: Span, name: str) -> Iterator[Span]:
    """Yield the places in a lambda's body where the variable of a name is read."""
    kind = node_name(expression)
    if kind == _LAMBDA:  # what it declares is not read
        yield from _read(expression.function(), query, name)
        return
    if kind == _VARIABLE:
        if _parts(expression)[0] == name:
            whole = origin(expression, query)
            first = next(iter(tokens(whole.source)))
            yield _within(whole, first.start, first.end)
        return
    for child in items(expression.children()):
        yield from _read(child, query, name)


def _within(whole: Span, start: int, end: int) -> Span:
    return replace(whole, start=whole.start + start, end=whole.start + end)
