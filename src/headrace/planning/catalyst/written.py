"""Where names stand in the text of a query, by what they mean: Spark's parser knows their places.

A parsed query has the variables of lambdas apart from columns, and relations apart from what WITH
names.

Rewrites qualified names such as ``gold.orders`` for Spark's session, where names are one word.

A relation is declared to Spark under its dotted name, as one word. Relation names in FROM, and
qualifiers of columns, are rewritten to that word, with the last part of the name as the alias.
Their places come from Spark's own parser.

Rewrites queries to read other relations in place of some, called by the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalyst.fence import name_of, nodes, origin
from headrace.planning.catalyst.lineage import bound_column
from headrace.planning.catalyst.scala import items, maybe, node_name, part
from headrace.planning.sql import Rewritten, quote
from headrace.planning.sql.lexer import tokens
from headrace.planning.sql.rewritten import Rewriting, is_name, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from headrace.planning.catalyst.fence import CheckedNode
    from headrace.planning.catalyst.lineage import BoundExpression
    from headrace.types import Schema


_PART = r"(?:`(?:[^`]|``)*`|\w+)"
_TABLE = re.compile(r"\bTABLE\s*$", re.IGNORECASE)


def with_one_word_names(parser: Any, query: Span, names: Collection[str]) -> Rewritten:
    """Return the query with the dotted ``names`` of relations as one word.

    A query that Spark cannot parse is returned unchanged: the caller's parsing reports the error.
    """
    text = _unquoted(query.source)
    dotted = {name for name in names if "." in name}
    if not any(_unquoted(name.rpartition(".")[2]) in text for name in dotted):
        return unchanged(query)
    try:
        parsed = parser.parsePlan(query.source)
    except PySparkException:
        return unchanged(query)
    return _Places(query, dotted).found_in(parsed).rewritten()


@dataclass(slots=True)
class _Places:
    """The places in a query of names that are declared as dotted names."""

    query: Span
    dotted: Collection[str]
    relations: dict[int, tuple[Span, str]] = field(default_factory=dict)
    aliased: set[int] = field(default_factory=set)
    columns: dict[int, tuple[Span, str]] = field(default_factory=dict)

    def found_in(self, parsed: Any) -> _Places:
        """Collect the places in every node of a parsed query."""
        for node in nodes(parsed):
            if node.kind == "SubqueryAlias":
                (child,) = node.below
                if str(child.nodeName()) == "UnresolvedRelation":
                    self.aliased.add(origin(child, self.query).start)
            elif node.kind == "UnresolvedRelation":
                name = _dotted(items(node.handle.multipartIdentifier()))
                if name in self.dotted:
                    span = origin(node.handle, self.query)
                    self.relations[span.start] = (span, name)
            for expression, kind_ in node.expressions:
                if kind_ == "UnresolvedAttribute":
                    self._column(expression, items(expression.nameParts())[:-1])
                elif kind_ == "UnresolvedStar":
                    target = maybe(expression.target())
                    self._column(expression, [] if target is None else items(target))
        return self

    def _column(self, expression: Any, qualifier: list[Any]) -> None:
        """Collect a column whose qualifier is or begins with a dotted name."""
        for length in range(len(qualifier), 1, -1):
            name = _dotted(qualifier[:length])
            if name not in self.dotted:
                continue
            span = origin(expression, self.query)
            found = re.match(rf"{_PART}(?:\s*\.\s*{_PART}){{{length - 1}}}", span.source)
            if found is not None:
                span = Span(span.text, span.start, span.start + found.end(), span.file, span.line)
                self.columns[span.start] = (span, name)
            return

    def rewritten(self) -> Rewritten:
        """Return the query with each of these names as one word."""
        rewriting = Rewriting(self.query)
        last = {name: name.rpartition(".")[2] for _, name in self.relations.values()}
        alike = [word for word in last.values() if list(last.values()).count(word) > 1]
        called = {name: name if word in alike else word for name, word in last.items()}
        for start in sorted([*self.relations, *self.columns]):
            if start in self.columns:
                span, name = self.columns[start]
                if name in called:
                    rewriting.replace(span, [quote(called[name])])
                continue
            span, name = self.relations[start]
            rewriting.replace(span, [quote(name)])
            bare = start in self.aliased or _TABLE.search(self.query.text[:start])
            if not bare and called[name] != name:
                rewriting.add(f" AS {quote(called[name])}")
        return rewriting.done()


def _unquoted(text: str) -> str:
    """Return a text in lower case without quotes of names, which are doubled in quoted names."""
    return text.lower().replace("`", "").replace('"', "")


def _dotted(parts: list[Any]) -> str:
    return ".".join(str(part).lower() for part in parts)


_WRITTEN_TABLE: Final = re.compile(r"\bTABLE\s*$", re.IGNORECASE)
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
        RelationPlace(name, span, start in named or bool(_WRITTEN_TABLE.search(query.text[:start])))
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


@dataclass(frozen=True, slots=True)
class Substitution:
    """Writes queries in Spark SQL whose names of relations are one word.

    ``relations`` has the names of what is read instead, by name. ``plain`` has the query of each
    plain view, in the same form, and its columns: it is written in place of its name if it reads
    one of these.
    """

    parser: Any
    relations: Mapping[str, str]
    plain: Mapping[str, tuple[Span, Schema]]

    def of(self, query: Span) -> str | None:
        """Return a query that reads the other relations; None if it names none of these.

        It calls them as before.

        Raises:
            HeadraceError: ``unsupported`` if WITH gives one of the names another meaning.
        """
        every = list(nodes(self.parser.parsePlan(query.source)))
        for node in every:
            if node.kind == "UnresolvedWith":
                self._refuse_hidden(node.handle, query)
        rewriting, changed = Rewriting(query), False
        for each in relations_in(every, query):
            other = self._instead(each.name)
            if other is None:
                continue
            changed = True
            rewriting.replace(
                each.span, [other if each.is_named else f"{other} AS {quote(each.name)}"]
            )
        return rewriting.done().span.source if changed else None

    def _instead(self, name: str) -> str | None:
        """Return what is read in place of a name; None if it stays."""
        if name in self.relations:
            return quote(self.relations[name])
        if name not in self.plain:
            return None
        query, schema = self.plain[name]
        text = self.of(query)
        if text is None:
            return None
        columns = ", ".join(map(quote, schema.names))
        return f"(SELECT * FROM ({text}) AS {quote(name)}({columns}))"

    def _refuse_hidden(self, with_: Any, query: Span) -> None:
        names = {str(part(pair, 0)).lower() for pair in items(with_.cteRelations())}
        taken = sorted(names & (self.relations.keys() | self.plain.keys()))
        if taken:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a query in which WITH names "{taken[0]}", as a relation is named, cannot be'
                " changed to read another one",
                hint="Give it another name in WITH.",
                span=query,
            )
