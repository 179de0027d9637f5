"""Parses the tokens of a query into a tree of brackets; parts of the translated text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.errors import Code, HeadraceError, Span
from headrace.sql.bounds import DEEPEST
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import StatementText, Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Group:
    """A pair of brackets and the nodes inside."""

    opening: Token
    inside: tuple[Node, ...]
    closing: Token

    word = ""
    """Empty, as for any token that is not a word."""

    @property
    def text(self) -> str:
        """The opening bracket."""
        return self.opening.text

    @property
    def start(self) -> int:
        """The start of the opening bracket."""
        return self.opening.start

    @property
    def end(self) -> int:
        """The end of the closing bracket."""
        return self.closing.end


Node: TypeAlias = Token | Group


class TextPart(NamedTuple):
    """A part of the new text: ``text`` in place of ``[start, end)``, or a copy of that range."""

    text: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """The replacement of some nodes.

    The nodes are ``[first, end)`` of a level. If ``first`` is before the current node, ``build``
    gets the text that was written for the nodes before it.
    """

    end: int
    parts: list[TextPart]
    first: int | None = None
    wrapped: tuple[str, str] = ("", "")


def nodes_of(text: str) -> tuple[Node, ...]:
    """Return the nodes of a generated text; empty if a bracket is unbalanced."""
    span = Span(text, 0, len(text))
    return tuple(tree_of(Cursor(StatementText(text, 0, len(text))).tokens[:-1], span) or ())


def tree_of(tokens: Sequence[Token], query: Span) -> tuple[Node, ...] | None:
    """Return the nodes of a query; None if a bracket is unbalanced.

    Raises:
        HeadraceError: ``unsupported`` if brackets are nested very deeply.
    """
    opened: list[tuple[Token, list[Node]]] = []
    nodes: list[Node] = []
    for token in tokens:
        if token.kind is not TokenKind.SYMBOL or token.text not in "()[]{}":
            nodes.append(token)
        elif token.text in _CLOSING:
            opened.append((token, nodes))
            nodes = []
            if len(opened) > DEEPEST:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    "the query is nested too deeply",
                    hint=f"Brackets may be nested {DEEPEST} deep.",
                    span=Span(query.text, token.start, token.end, query.file),
                )
        else:
            if not opened or _CLOSING[opened[-1][0].text] != token.text:
                return None
            opening, outer = opened.pop()
            outer.append(Group(opening, tuple(nodes), token))
            nodes = outer
    return None if opened else tuple(nodes)


def is_group(node: Node | None, bracket: str = "(") -> bool:
    """Return whether a node is a pair of these brackets."""
    return isinstance(node, Group) and node.opening.text == bracket


def bare_name(name: str) -> str:
    """Return a name for comparisons: without backquotes, in lower case."""
    return name.strip("`").lower()


def split_at(nodes: Sequence[Node], symbol: str = ",") -> list[tuple[Node, ...]]:
    """Return the nodes between the symbols; an empty list for no nodes."""
    if not nodes:
        return []
    found: list[list[Node]] = [[]]
    for node in nodes:
        if isinstance(node, Token) and node.kind is TokenKind.SYMBOL and node.text == symbol:
            found.append([])
        else:
            found[-1].append(node)
    return [tuple(each) for each in found]


def is_query(nodes: Sequence[Node]) -> bool:
    """Return whether nodes are a query, possibly in parentheses."""
    if not nodes:
        return False
    first = nodes[0]
    if isinstance(first, Group):
        return first.text == "(" and is_query(first.inside)
    return first.word in {"SELECT", "WITH", "VALUES"} or (first.word in {"FROM", "TABLE"})


def same(left: Sequence[Node], right: Sequence[Node]) -> bool:
    """Return whether two expressions have the same tokens, regardless of case."""
    return folded(left) == folded(right)


def folded(nodes: Sequence[Node]) -> list[str]:
    """Return the tokens of an expression for comparisons regardless of case."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, Group):
            found += [node.opening.text, *folded(node.inside), node.closing.text]
        elif node.kind is TokenKind.BACKQUOTED:
            found.append(node.text[1:-1].lower())
        else:
            found.append(node.word.lower() or node.text)
    return found
