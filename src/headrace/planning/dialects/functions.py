"""``FROM balance(TABLE payments)``: folds, Python functions of a key's events, in plain Spark SQL.

The call becomes a subquery that collects and sorts the events of each key, and calls the function
on the list. So Spark can run it as a batch query; a view is maintained event by event. PARTITION BY
and ORDER BY may be given, as in SQL's table functions, and must equal the fold's own.

Calls of functions by CREATE FUNCTION, replaced by their bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import FUNCTION_VIEW, PlainView
from headrace.planning.dialects.tree import Group, is_group, split_at, tree_of
from headrace.planning.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.planning.sql.lexer import StatementText, Token, TokenKind, identifier_value, quote
from headrace.planning.sql.rewritten import (
    Rewriting,
    Rewritten,
    called_with,
    function_of,
    unchanged,
    uses,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.planning.catalog import Relation
    from headrace.planning.dialects.tree import Node
    from headrace.planning.functions import Folded
    from headrace.planning.sql.rewritten import CreateFunction
    from headrace.types import RelationId


_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_BEFORE_RELATIONS = frozenset({"FROM", "JOIN"})
_ROW = f"{RESERVED_PREFIX}row"


def with_folds(query: Span, folds: Mapping[str, Folded]) -> Rewritten:
    """Return the query with each call of a fold in FROM as a subquery; ``folds`` are by name.

    Raises:
        HeadraceError: ``invalid``, at the place in the query, if the call is malformed.
    """
    rewritten = unchanged(query)
    while True:  # a fold may be called on what another one returns
        with rewritten.mapping_errors():
            inner = _once(rewritten.span, folds)
        if not inner.pieces:
            return rewritten
        rewritten = inner.after(rewritten)


def _once(query: Span, folds: Mapping[str, Folded]) -> Rewritten:
    text = query.source.lower()
    if not any(name in text for name in folds):
        return unchanged(query)
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    rewriting = Rewriting(query)
    while not cursor.at_end():
        token = cursor.token
        named = token.kind in _IDENTIFIERS and cursor.peek(1).text == "("
        name = identifier_value(token).lower() if named else ""
        is_relation = cursor.peek(2).word == "TABLE" or cursor.previous.word in _BEFORE_RELATIONS
        if name in folds and is_relation:
            _Call(cursor, name, folds[name]).rewrite(rewriting)
        else:
            cursor.advance()
    return rewriting.done()


class _Call:
    """One call; the cursor is at the name of the fold."""

    def __init__(self, cursor: Cursor, name: str, fold: Folded) -> None:
        self.cursor = cursor
        self.name = name
        self.fold = fold

    def rewrite(self, rewriting: Rewriting) -> None:
        """Parse the call, and write the subquery."""
        cursor, fold = self.cursor, self.fold
        name = cursor.advance()
        cursor.expect_symbol("(")
        if not cursor.accept("TABLE"):
            raise cursor.expected("TABLE", hint=self._form)
        events = self._events()
        if cursor.accept("PARTITION", "BY"):
            self._check("PARTITION BY", fold.key)
        if cursor.accept("ORDER", "BY"):
            self._check("ORDER BY", fold.order_by)
        cursor.expect_symbol(")")
        key = ", ".join(map(quote, fold.key))
        order = ", ".join(map(quote, fold.order_by))
        before = (
            f"(SELECT {key}, {_ROW}.* FROM (SELECT {key}, {quote(self.name)}(sort_array("
            f"collect_list(named_struct('by', struct({order}), 'event', struct(*))))) AS {_ROW}"
            " FROM "
        )
        rewriting.replace(cursor.span(name), [before, events, f" GROUP BY {key}))"])

    def _events(self) -> tuple[int, int]:
        """Take a relation's name, or a query in brackets; return its range, as in FROM."""
        cursor = self.cursor
        if cursor.at_symbol("("):
            first = cursor.token
            last = self._closed()
            inside = cursor.tokens[cursor.tokens.index(first) + 1]
            if inside.word in _QUERIES or inside.text == "(":
                return first.start, last.end
            return inside.start, last.start
        first = self._name()
        while cursor.accept_symbol("."):
            self._name()
        return first.start, cursor.previous.end

    @property
    def _form(self) -> str:
        return f"Write {self.name}(TABLE name) or {self.name}(TABLE(SELECT ...))."

    def _name(self) -> Token:
        if self.cursor.token.kind not in _IDENTIFIERS:
            raise self.cursor.expected(
                "the name of a relation",
                hint=self._form,
            )
        return self.cursor.advance()

    def _closed(self) -> Token:
        """Take everything between brackets, and return the closing one."""
        depth = 0
        while True:
            if self.cursor.at_end():
                raise self.cursor.expected('")"')
            token = self.cursor.advance()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0:
                return token

    def _check(self, clause: str, wanted: tuple[str, ...]) -> None:
        """Take columns, and refuse them if they differ from the fold's own."""
        cursor = self.cursor
        bracketed = cursor.accept_symbol("(")
        first, found = cursor.token, []
        while True:
            found.append(identifier_value(self._name()).lower())
            cursor.accept("ASC")
            if not cursor.accept_symbol(","):
                break
        place = cursor.span(first)
        if bracketed:
            cursor.expect_symbol(")")
        if tuple(found) != tuple(name.lower() for name in wanted):
            raise HeadraceError(
                Code.INVALID,
                f'fold "{self.name}" has another {clause}: {", ".join(wanted)}',
                hint=f"Leave {clause} out: it is part of the fold.",
                span=place,
            )


_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


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
