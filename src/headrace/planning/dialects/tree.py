"""Parses the tokens of a query into a tree of brackets; parts of the translated text.

Finds the SELECTs of one bracket level, and the positions of their clauses.

A query that begins with FROM, as in ``FROM t |> WHERE ...``, is a block too. A pipe ends a block.

Finds the beginning of the operand to the left of an operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.sql.cursor import DEEPEST, Cursor
from headrace.planning.sql.lexer import NOT_NAMES, StatementText, Token, TokenKind, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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


_SETS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
_BY = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "PARTITION"})
_ALONE = frozenset({"WHERE", "HAVING", "QUALIFY"})
_COUNTED = frozenset({"LIMIT", "OFFSET", "FETCH"})
KSQL_WINDOWS = frozenset({"TUMBLING", "HOPPING", "SESSION"})
_JOINING = frozenset({"ON", "USING", "JOIN", "LATERAL", "TABLESAMPLE", "PIVOT", "UNPIVOT", "FOR"})
KINDS_OF_JOIN = frozenset(
    {"INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "OUTER", "SEMI", "ANTI", "ASOF"}
)
"""The words that can come before JOIN."""

_AFTER_RELATION = KINDS_OF_JOIN - {"LEFT", "RIGHT"} | {"JOIN", "ON", "USING"}
"""Words that cannot be followed by a condition. LEFT and RIGHT are also functions."""

_WITHOUT_COLUMNS = frozenset({"SEMI", "ANTI"})

NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT, or FROM alone: the nodes ``[start, end)`` of a level, and its clauses.

    A clause is named by its first word; its range ``[first, last)`` starts after its keywords and
    ends at the next clause.
    """

    nodes: Sequence[Node]
    start: int
    end: int
    clauses: dict[str, tuple[int, int]]

    def clause(self, word: str) -> Sequence[Node]:
        """Return the nodes of a clause; empty if the SELECT has no such clause."""
        first, last = self.clauses.get(word, (0, 0))
        return self.nodes[first:last]


@dataclass(frozen=True, slots=True)
class Named:
    """A relation named in FROM, with its alias; ``[start, end)`` are the nodes of the name.

    ``shown`` is false for the right side of a SEMI or ANTI JOIN: only ON can name its columns.
    """

    start: int
    end: int
    name: str
    alias: Token | None
    shown: bool

    @property
    def qualifier(self) -> str:
        """The qualifier of its columns."""
        return self.alias.text if self.alias else quote(self.name.rpartition(".")[2])


def blocks_of(nodes: Sequence[Node]) -> list[Block]:
    """Return the SELECTs of a level, in order."""
    starts = list(_starts(nodes))
    found = []
    for which, start in enumerate(starts):
        limit = starts[which + 1] if which + 1 < len(starts) else len(nodes)
        ends = (i for i in range(start, limit) if nodes[i].text == "|>" or _is_set(nodes, i))
        end = next(ends, limit)
        found.append(Block(nodes, start, end, _clauses(nodes, start, end)))
    return found


def _starts(nodes: Sequence[Node]) -> Iterator[int]:
    """Yield the indexes at which SELECTs, and queries that begin with FROM, begin."""
    begun = not is_query(nodes)
    for i, node in enumerate(nodes):
        if node.word == "SELECT" or (node.word == "FROM" and not begun):
            yield i
            begun = True
        elif begun and _is_set(nodes, i):
            begun = False


def in_set(block: Block) -> bool:
    """Return whether a SELECT is an operand of a set operation without parentheses."""
    return any(_is_set(block.nodes, i) for i in range(len(block.nodes)))


def _is_set(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a set operation begins here, and not the EXCEPT of ``* EXCEPT (column)``."""
    if nodes[at].word not in _SETS or at + 1 >= len(nodes):
        return False
    following = nodes[at + 1]
    if isinstance(following, Group):
        return is_query(following.inside)
    return following.word in {"SELECT", "ALL", "DISTINCT", "VALUES", "TABLE", "FROM", "WITH"}


def _clauses(nodes: Sequence[Node], start: int, end: int) -> dict[str, tuple[int, int]]:
    begun = [(nodes[start].word, start, start + 1)]
    for i in range(start + 1, end):
        width = _opens(nodes, i, end)
        if width:
            begun.append((nodes[i].word, i, i + width))
    limits = [first for _, first, _ in begun[1:]] + [end]
    found: dict[str, tuple[int, int]] = {}
    for (word, _, first), last in zip(begun, limits, strict=True):
        found.setdefault(word, (first, last))
    return found


def _opens_join(nodes: Sequence[Node], at: int, end: int) -> bool:
    """Return whether words such as ``LEFT OUTER JOIN`` begin here."""
    while at < end and nodes[at].word in KINDS_OF_JOIN:
        at += 1
    return at < end and nodes[at].word == "JOIN"


def _opens(nodes: Sequence[Node], at: int, end: int) -> int:
    """Return the number of words of the clause that begins here; 0 if none does."""
    word, before = nodes[at].word, nodes[at - 1]
    following = nodes[at + 1] if at + 1 < end else None
    if not word or before.text in {".", "::"} or before.word == "AS" or following is None:
        return 0
    if word == "FROM":
        return 0 if before.word == "DISTINCT" else 1
    if word in _BY:
        return 2 if following.word == "BY" else 0
    if word in _ALONE:
        joins = following.word in _AFTER_RELATION or _opens_join(nodes, at + 1, end)
        return int(following.text not in {".", ","} and not joins)
    if word == "WINDOW":
        named = at + 2 < end and nodes[at + 2].word == "AS"
        tumbling = following.word in KSQL_WINDOWS and at + 2 < end and is_group(nodes[at + 2])
        return int(named or tumbling)
    if word == "EMIT":
        if [node.word for node in nodes[at + 1 : at + 4]] == ["ON", "WINDOW", "CLOSE"]:
            return 4  # RisingWave's EMIT ON WINDOW CLOSE
        return 2 if following.word == "FINAL" else 0
    if word == "FETCH" and following.word in {"FIRST", "NEXT"}:
        return 1
    if word in _COUNTED:
        return int(isinstance(following, Token) and following.kind is TokenKind.NUMBER)
    return 0


def relations_of(block: Block) -> Iterator[Named]:
    """Yield the relations named in the FROM of a block, without those in subqueries."""
    first, last = block.clauses.get("FROM", (0, 0))
    nodes = block.nodes
    at = first
    while at < last:
        introduced = at == first or nodes[at - 1].text == "," or nodes[at - 1].word == "JOIN"
        node = nodes[at]
        if not introduced or not isinstance(node, Token) or node.kind not in NAMES:
            at += 1
            continue
        end = at + 1
        while end + 1 < last and nodes[end].text == ".":
            end += 2
        if end < last and is_group(nodes[end]):
            at = end + 1  # a function
            continue
        name = ".".join(bare_name(n.text) for n in nodes[at:end:2])
        shown = nodes[at - 1].word != "JOIN" or nodes[at - 2].word not in _WITHOUT_COLUMNS
        yield Named(at, end, name, alias_at(nodes, end, last), shown)
        at = end


def alias_at(nodes: Sequence[Node], at: int, last: int) -> Token | None:
    """Return the alias after a relation; None if there is none."""
    if at < last and nodes[at].word == "AS":
        at += 1
    elif (at < last and nodes[at].word in _JOINING | KINDS_OF_JOIN) or opens_within(nodes, at):
        return None
    node = nodes[at] if at < last else None
    return node if isinstance(node, Token) and node.kind in NAMES else None


def opens_within(nodes: Sequence[Node], at: int) -> bool:
    """Return whether ksqlDB's WITHIN and a duration begin here."""
    if at + 2 >= len(nodes) or nodes[at].word != "WITHIN":
        return False
    following = nodes[at + 1]
    return is_group(following) or getattr(following, "kind", None) is TokenKind.NUMBER


_FURTHER = frozenset({"JOIN", "LATERAL", "PIVOT", "UNPIVOT"})


def condition_end(nodes: Sequence[Node], at: int, last: int) -> int:
    """Return the end of the condition that begins at a node: the next join, or ``last``."""
    end = next((i for i in range(at, last) if _goes_on(nodes, i)), last)
    if end < last:
        while nodes[end - 1].word in KINDS_OF_JOIN:
            end -= 1
    return end


def _goes_on(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a part of FROM that ends a condition begins here."""
    return nodes[at].text == "," or (nodes[at].word in _FURTHER and nodes[at - 1].text != ".")


_POSTFIX = frozenset({".", "::", "->", ":"})
_NOT_OPERANDS = NOT_NAMES - {"END", "NULL"} | {"QUALIFY", "BETWEEN", "RLIKE", "ILIKE", "ANY", "ALL"}
_VALUES = frozenset({TokenKind.STRING, TokenKind.DQUOTED, TokenKind.NUMBER, TokenKind.BACKQUOTED})
_TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL", "X"})


def ends_operand(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a value ends at a node, so that an operator follows."""
    if at < 0:
        return False
    node = nodes[at]
    if isinstance(node, Group):
        return True
    return node.kind in _VALUES or (node.kind is TokenKind.WORD and node.word not in _NOT_OPERANDS)


def operand_before(nodes: Sequence[Node], at: int) -> int:
    """Return the first node of the value that ends before ``at``: a column, call or literal."""
    first = _primary(nodes, at - 1)
    while first >= 2:  # noqa: PLR2004 - an operator and what is before it
        if nodes[first - 1].text in _POSTFIX:
            first = _primary(nodes, first - 2)
        elif is_double_arrow(nodes, first - 2):
            first = _primary(nodes, first - 3)
        else:
            break
    return max(first, 0)


def is_double_arrow(nodes: Sequence[Node], at: int) -> bool:
    """Return whether ``->>`` begins at a node; the lexer reads it as two symbols."""
    if at < 0 or at + 1 >= len(nodes) or nodes[at].text != "->":
        return False
    return nodes[at + 1].text == ">" and nodes[at + 1].start == nodes[at].end


def _primary(nodes: Sequence[Node], at: int) -> int:
    while at > 0 and isinstance(nodes[at], Group) and nodes[at].text == "[":
        at -= 1
    node, before = nodes[at], nodes[at - 1] if at > 0 else None
    if before is None or not isinstance(before, Token):
        return at
    if isinstance(node, Group):
        called = before.kind is TokenKind.BACKQUOTED or (
            before.kind is TokenKind.WORD and before.word not in _NOT_OPERANDS
        )
        return at - 1 if called else at
    if node.word == "END":
        depth = 0
        while at > 0:
            depth += (nodes[at].word == "END") - (nodes[at].word == "CASE")
            if depth == 0:
                break
            at -= 1
        return at
    return at - 1 if node.kind is TokenKind.STRING and before.word in _TYPED else at
