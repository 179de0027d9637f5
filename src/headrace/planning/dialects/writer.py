"""Writes the translated text of a query: copies the rest, and records every position.

A call in a query: its name, its arguments, and its translation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.dialects.tree import (
    Block,
    Found,
    Group,
    Node,
    TextPart,
    blocks_of,
    ends_operand,
    is_group,
    is_query,
    split_at,
)
from headrace.planning.sql.lexer import Token, TokenKind, string_value
from headrace.planning.sql.rewritten import Rewriting, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from headrace.planning.catalog import Relation
    from headrace.planning.sql.rewritten import Rewritten


_HOLE = re.compile(r"\{(\d|\*|filter)\}")
_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})


@dataclass(frozen=True, slots=True)
class Site:
    """A call: the nodes at ``at`` and after it are the name and the parentheses."""

    writer: Writer
    nodes: Sequence[Node]
    at: int
    scope: Scope
    arguments: tuple[tuple[Node, ...], ...]

    @property
    def name(self) -> str:
        """The function's name in upper case."""
        return self.nodes[self.at].word

    @property
    def group(self) -> Group:
        """The parentheses with the arguments."""
        group = self.nodes[self.at + 1]
        assert isinstance(group, Group)  # noqa: S101 - as every call
        return group

    @property
    def place(self) -> tuple[Node, Node]:
        """The first and the last node of the call."""
        return self.nodes[self.at], self.group

    def following(self, ahead: int = 0) -> Node | None:
        """Return the node ``ahead`` positions after the call."""
        at = self.at + 2 + ahead
        return self.nodes[at] if at < len(self.nodes) else None

    @property
    def over(self) -> bool:
        """Whether OVER follows the call, so that it is a window function."""
        end, _, _ = self._filter()
        return self._over(end)

    def literal(self, which: int) -> str | None:
        """Return the value of an argument that is a string literal; None for other arguments."""
        if which >= len(self.arguments) or len(self.arguments[which]) != 1:
            return None
        (node,) = self.arguments[which]
        if not isinstance(node, Token) or node.kind not in _STRINGS:
            return None
        return string_value(node)

    def bare(self, which: int) -> str:
        """Return an argument that is a single word, in upper case; empty for other arguments."""
        if which >= len(self.arguments) or len(self.arguments[which]) != 1:
            return ""
        return self.arguments[which][0].word

    def written(self, template: str, arguments: Sequence[Sequence[Node]] | None = None) -> Found:
        """Return a template filled with the arguments, replacing the call and its FILTER."""
        given = self.arguments if arguments is None else arguments
        parts: list[TextPart] = []
        end, last, condition = self._filter()
        own = "{filter}" in template
        if own and self._over(end):
            raise self.refused(
                f"{self.name} with OVER is not supported",
                "Use it with GROUP BY, and join the result.",
            )
        if not own:
            end, last = self.at + 2, self.group
        place = (self.nodes[self.at], last)
        scope = replace(self.scope, function=self.name)
        at = 0
        for hole in _HOLE.finditer(template):
            self._put(parts, template[at : hole.start()], place)
            at = hole.end()
            if hole[1] == "filter":
                self._filtered(parts, condition, place, inside="WHERE" in template)
            elif hole[1] == "*":
                for i, argument in enumerate(given):
                    self._put(parts, ", " if i else "", place)
                    parts += self.writer.level(argument, scope)
            else:
                parts += self.writer.level(given[int(hole[1])], scope)
        self._put(parts, template[at:], place)
        return Found(end, parts)

    def _put(self, parts: list[TextPart], text: str, place: tuple[Node, Node]) -> None:
        if text:
            parts.append(self.writer.put(text, *place))

    def _filtered(
        self,
        parts: list[TextPart],
        condition: tuple[Node, ...],
        place: tuple[Node, Node],
        *,
        inside: bool,
    ) -> None:
        if not condition:
            return
        self._put(parts, " AND (" if inside else " FILTER (WHERE ", place)
        parts += self.writer.level(condition, self.scope)
        self._put(parts, ")", place)

    def _filter(self) -> tuple[int, Node, tuple[Node, ...]]:
        """Return the end of the call with its FILTER clause, its last node, and the condition."""
        word, clause = self.following(), self.following(1)
        if word is None or word.word != "FILTER" or not isinstance(clause, Group):
            return self.at + 2, self.group, ()
        if not clause.inside or clause.inside[0].word != "WHERE":
            return self.at + 2, self.group, ()
        return self.at + 4, clause, clause.inside[1:]

    def _over(self, end: int) -> bool:
        return end < len(self.nodes) and self.nodes[end].word == "OVER"

    def refused(self, what: str, hint: str, detail: str | None = None) -> HeadraceError:
        """Return the error that refuses the call."""
        return self.writer.refused(what, hint, *self.place, detail)


Form: TypeAlias = "Callable[[Site], Found | None]"
"""Translates a call for which a template is not enough; None if Spark should read it."""


def site_at(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Site | None:
    """Return the call at a node; None if the node is not a call."""
    if at + 1 >= len(nodes) or not nodes[at].word or not is_group(nodes[at + 1]):
        return None
    before = nodes[at - 1] if at else None
    if before is not None and (before.text == "." or before.word == "AS"):
        return None
    if nodes[at].word == "DIV" and ends_operand(nodes, at - 1):
        return None  # an operator
    group = nodes[at + 1]
    assert isinstance(group, Group)  # noqa: S101 - is_group
    return Site(writer, nodes, at, scope, tuple(split_at(group.inside)))


_PLACE = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Ending:
    """When the windows end by which a SELECT groups its rows.

    ``end`` is the expression for the end of a window, ``time`` that for the time of a row: nodes of
    the query, or text. ``grace`` is the delay after a window's end in microseconds, if the query
    states it. ``source`` is the source of the rows, if it is not the whole FROM.
    """

    end: str
    time: tuple[Node, ...] | str
    grace: int | None = None
    source: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that the expressions of one SELECT can refer to, besides its columns.

    ``ending``: when the windows that group its rows end. ``time`` is the event time of its stream,
    ``offset`` the position of a row in its log, if known. ``times`` has the types of its time
    columns, by lower-case name, alone and qualified. ``hidden`` are the columns that ``*``
    excludes, with the name of their relation. ``names`` are expressions by name, such as ROWTIME in
    milliseconds; ``instants`` has the same as timestamps. ``source`` is what FROM reads, where it
    differs from the named relation.
    """

    calls: Mapping[str, WindowColumn] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    instants: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    offset: str | None = None
    ending: Ending | None = None
    times: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[tuple[str, str], ...] = ()
    source: str | None = None
    maps: frozenset[str] = frozenset()
    """The columns of its stream whose values Spark cannot compare, in lower case."""
    function: str = ""
    """The function whose parentheses enclose the expression, in upper case."""

    def hiding(self, relation: str, column: str) -> Scope:
        """Return the scope with one more hidden column."""
        return replace(self, hidden=(*self.hidden, (relation, column)))


@dataclass(frozen=True, slots=True)
class WindowColumn:
    """The expression for functions such as ``TUMBLE_START(time, size)``, and their arguments."""

    text: str
    arguments: tuple[tuple[Node, ...], ...]


class Rule(Protocol):
    """Translates a form that begins at one node of a level."""

    def __call__(
        self, writer: Writer, nodes: Sequence[Node], at: int, scope: Scope
    ) -> Found | None:
        """Return the replacement of this node and following ones; None if it does not apply."""
        ...


class BlockRule(Protocol):
    """Translates forms of one SELECT."""

    def __call__(self, writer: Writer, block: Block, scope: Scope) -> Edits | None:
        """Return the changes of the SELECT; None if there are none."""
        ...


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes of a SELECT: replaced nodes, text inserted before nodes, its scope."""

    scope: Scope
    replaced: Mapping[int, Found] = field(default_factory=dict)
    inserted: Mapping[int, list[TextPart]] = field(default_factory=dict)
    """Text inserted before the node with this index; one past the last node is the end."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes one query; ``rules`` are tried in order at every node."""

    query: Span
    relations: Mapping[str, Relation]
    rules: Sequence[Rule]
    block_rules: Sequence[BlockRule]
    common_tables: Collection[str] = ()
    """The names that WITH defines in the query, in lower case."""
    ksqldb: bool = False
    """Whether the query is read as ksqlDB as a whole."""
    declared: bool = False
    """Whether that is because it reads a relation that was declared as in ksqlDB."""
    undecided: bool = False
    """Whether functions with another meaning in ksqlDB are refused."""
    once: bool = False
    """Whether the query is evaluated once, and not maintained as a view."""

    def whole(self, nodes: Sequence[Node]) -> Rewritten:
        """Return the rewritten query."""
        if not nodes:
            return unchanged(self.query)
        rewriting = Rewriting(self.query)
        before = self._copy(self.query.start, nodes[0].start)
        after = self._copy(nodes[-1].end, self.query.end)
        for part in (*before, *self.level(nodes, Scope()), *after):
            if part.text is None:
                rewriting.copy(part.start, part.end)
            else:
                rewriting.put(part.text, part.start, part.end)
        return rewriting.done()

    def level(self, nodes: Sequence[Node], scope: Scope) -> list[TextPart]:
        """Return the parts for the nodes of one level, and for the text between them."""
        edits, scopes = self._edits(nodes, scope)
        written: list[TextPart] = []
        marks: dict[int, int] = {}
        at, last = 0, nodes[0].start if nodes else 0
        while at < len(nodes):
            written += self._copy(last, nodes[at].start)
            marks[at] = len(written)
            written += edits.inserted.get(at, ())
            found = edits.replaced.get(at) or self._found(nodes, at, scopes.get(at, scope))
            if found is None:
                name = nodes[at - 1].word if at else ""
                written += self._node(nodes[at], scopes.get(at, scope), name)
                last, at = nodes[at].end, at + 1
                continue
            if found.first is not None:
                begun = marks[found.first]
                place = nodes[found.first].start, nodes[found.end - 1].end
                before, after = found.wrapped
                kept = written[begun:]
                written[begun:] = [
                    TextPart(before, *place),
                    *kept,
                    *found.parts,
                    TextPart(after, *place),
                ]
            else:
                written += found.parts
            last, at = nodes[found.end - 1].end, found.end
        written += edits.inserted.get(len(nodes), ())
        return written

    def _edits(self, nodes: Sequence[Node], scope: Scope) -> tuple[Edits, dict[int, Scope]]:
        replaced: dict[int, Found] = {}
        inserted: dict[int, list[TextPart]] = {}
        scopes: dict[int, Scope] = {}
        for block in blocks_of(nodes):
            own = Scope()
            for rule in self.block_rules:
                edits = rule(self, block, own)
                if edits is not None:
                    own = edits.scope
                    replaced.update(edits.replaced)
                    for place, parts in edits.inserted.items():
                        inserted.setdefault(place, []).extend(parts)
            scopes.update(dict.fromkeys(range(block.start, block.end), own))
        return Edits(scope, replaced, inserted), scopes

    def _found(self, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
        for rule in self.rules:
            found = rule(self, nodes, at, scope)
            if found is not None:
                return found
        return None

    def _node(self, node: Node, scope: Scope, name: str) -> list[TextPart]:
        if not isinstance(node, Group):
            return [TextPart(None, node.start, node.end)]
        function = "" if is_query(node.inside) else name
        inside = self.level(node.inside, replace(scope, function=function))
        first = node.inside[0].start if node.inside else node.closing.start
        last = node.inside[-1].end if node.inside else first
        return [
            *self._copy(node.start, first),
            *inside,
            *self._copy(last, node.end),
        ]

    def _copy(self, start: int, end: int) -> list[TextPart]:
        return [TextPart(None, start, end)] if end > start else []

    def relation(self, name: str) -> Relation | None:
        """Return the relation of a name in FROM; None if WITH defines the name."""
        return None if name in self.common_tables else self.relations.get(name)

    # -- for rules -------------------------------------------------------------------------

    def put(self, text: str, first: Node, last: Node) -> TextPart:
        """Return text that replaces the nodes from one to another."""
        return TextPart(text, first.start, last.end)

    def filled(
        self,
        template: str,
        arguments: Sequence[Sequence[Node]],
        place: tuple[Node, Node],
        scope: Scope,
    ) -> list[TextPart]:
        """Return a template's text, with the translated arguments at ``{0}``, ``{1}``, ..."""
        parts: list[TextPart] = []
        at = 0
        for hole in _PLACE.finditer(template):
            if hole.start() > at:
                parts.append(self.put(template[at : hole.start()], *place))
            parts += self.level(arguments[int(hole[1])], scope)
            at = hole.end()
        if template[at:]:
            parts.append(self.put(template[at:], *place))
        return parts

    def span(self, first: Node, last: Node | None = None) -> Span:
        """Return the place of some nodes in the original query."""
        end = (last or first).end
        return Span(self.query.text, first.start, end, self.query.file, self.query.line)

    def refused(
        self, what: str, hint: str, first: Node, last: Node | None = None, detail: str | None = None
    ) -> HeadraceError:
        """Return the error that refuses a form of another dialect."""
        return HeadraceError(Code.UNSUPPORTED, what, detail, hint, self.span(first, last))

    def invalid(
        self, what: str, hint: str | None, first: Node, last: Node | None = None
    ) -> HeadraceError:
        """Return the error for a malformed form."""
        return HeadraceError(Code.INVALID, what, None, hint, self.span(first, last))
