"""A call in a query: its name, its arguments, and its translation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.dialects.operands import ends_operand
from headrace.dialects.tree import Found, Group, Node, TextPart, is_group, split_at
from headrace.sql.lexer import Token, TokenKind, string_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.dialects.writer import Scope, Writer
    from headrace.errors import HeadraceError

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
