"""As-of joins of RisingWave, DuckDB and ClickHouse, which have the inequality in ON.

``a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t`` is Spark's ``a LEFT ASOF JOIN b MATCH_CONDITION
(a.t >= b.t) ON a.k = b.k``: among the rows of ``b`` that meet the other conditions, the nearest one
in time. The condition must have exactly one inequality between the two sides; conditions on columns
of one side stay in ON.

``FROM AS_OF(TABLE pairs, DESCRIPTOR(at), week, tiers(tier AS t))``: rows as of their times.

A polymorphic table function in the notation of the standard: the rows of a table or a query, with
the values that views had at the time in one of their columns. ``DESCRIPTOR`` may be left out if
only one column is a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.planning.catalog import Table, View, key_of
from headrace.planning.dialects.tree import (
    KINDS_OF_JOIN,
    NAMES,
    Found,
    Group,
    Node,
    TextPart,
    alias_at,
    bare_name,
    condition_end,
    is_group,
    relations_of,
)
from headrace.planning.dialects.writer import Edits, Scope, Writer
from headrace.planning.sql.as_of import PairsAsOf
from headrace.planning.sql.fragments import take_asked_view
from headrace.planning.sql.lexer import Token, TokenKind, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.errors import HeadraceError, Span
    from headrace.planning.catalog import Relation
    from headrace.planning.dialects.tree import Block
    from headrace.planning.sql.as_of import AskedView
    from headrace.planning.sql.cursor import Cursor


_KINDS = {(): "", ("INNER",): "", ("LEFT",): "LEFT ", ("LEFT", "OUTER"): "LEFT "}
_INEQUALITIES = frozenset({"<", "<=", ">", ">="})
_SPLIT_OTHERWISE = frozenset({"OR", "BETWEEN"})
_FORM = (
    "Write ASOF JOIN b ON a.k = b.k AND a.t >= b.t, or MATCH_CONDITION (a.t >= b.t) ON a.k = b.k."
)


@dataclass(frozen=True, slots=True)
class _Join:
    """An as-of join: ``ASOF`` at ``[start, relation)``, its condition at ``[on + 1, end)``."""

    start: int
    relation: int
    on: int
    end: int


def asof_joins(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Move the inequality in the ON of as-of joins into a MATCH_CONDITION."""
    first, last = block.clauses.get("FROM", (0, 0))
    replaced: dict[int, Found] = {}
    for at in range(first + 1, last):
        if not opens_asof(block.nodes, at, last):
            continue
        join = _joined(writer, block, at, last)
        kind = tuple(node.word for node in block.nodes[at + 1 : join.relation - 1])
        words = block.nodes[at], block.nodes[join.relation - 1]
        if kind not in _KINDS:
            raise writer.refused(
                f"ASOF {' '.join(kind)} JOIN is not supported",
                "Use ASOF JOIN or ASOF LEFT JOIN, with the row to find on the right.",
                *words,
            )
        if kind:
            text = writer.put(f"{_KINDS[kind]}ASOF JOIN", *words)
            replaced[at] = Found(join.relation, [text])
        if block.nodes[join.on].word == "ON":
            replaced[join.on] = Found(join.end, _written(writer, block, join, scope))
    return Edits(scope, replaced) if replaced else None


def opens_asof(nodes: Sequence[Node], at: int, last: int) -> bool:
    """Return whether an as-of join begins here: ASOF, its kind, and JOIN."""
    if nodes[at].word != "ASOF" or nodes[at - 1].text == "." or nodes[at - 1].word == "AS":
        return False
    end = at + 1
    while end < last and nodes[end].word in KINDS_OF_JOIN:
        end += 1
    return end + 1 < last and nodes[end].word == "JOIN"


def _joined(writer: Writer, block: Block, at: int, last: int) -> _Join:
    nodes = block.nodes
    relation = next(i for i in range(at, last) if nodes[i].word == "JOIN") + 1
    end = condition_end(nodes, relation, last)
    on = next((i for i in range(relation, end) if nodes[i].word in {"ON", "MATCH_CONDITION"}), None)
    if on is None:
        raise writer.refused(
            "ASOF JOIN without an inequality is not supported",
            _FORM,
            nodes[at],
            nodes[relation],
            "Which row is the nearest one would not be determined.",
        )
    return _Join(at, relation, on, end)


def _written(writer: Writer, block: Block, join: _Join, scope: Scope) -> list[TextPart]:
    conditions = _conjuncts(writer, block, join)
    crossing = [each for each in conditions if _crosses(writer, block, join, each)]
    if len(crossing) != 1:
        raise _refused(
            writer, block, join, f"with {len(crossing) or 'no'} inequalities between its sides"
        )
    place = block.nodes[join.on], block.nodes[join.end - 1]
    parts = [
        writer.put("MATCH_CONDITION (", *place),
        *writer.level(crossing[0], scope),
        writer.put(")", *place),
    ]
    for number, each in enumerate(each for each in conditions if each is not crossing[0]):
        parts += [writer.put(" AND " if number else " ON ", *place), *writer.level(each, scope)]
    return [*parts, writer.put(" ", *place)]


def _conjuncts(writer: Writer, block: Block, join: _Join) -> list[Sequence[Node]]:
    """Return the operands of AND in ON; the whole condition may be in parentheses."""
    nodes: Sequence[Node] = block.nodes[join.on + 1 : join.end]
    while len(nodes) == 1 and isinstance(nodes[0], Group):
        nodes = nodes[0].inside
    found: list[Sequence[Node]] = []
    begun, depth = 0, 0
    for at, node in enumerate(nodes):
        depth += (node.word == "CASE") - (node.word == "END")
        if depth == 0 and node.word in _SPLIT_OTHERWISE:
            raise _refused(writer, block, join, f"with {node.word} in its condition")
        if depth == 0 and node.word == "AND":
            found.append(nodes[begun:at])
            begun = at + 1
    found.append(nodes[begun:])
    if not all(found):
        raise _refused(writer, block, join, "of this form")
    return found


def _refused(writer: Writer, block: Block, join: _Join, what: str) -> HeadraceError:
    return writer.refused(
        f"an as-of join {what} is not supported",
        _FORM,
        block.nodes[join.start],
        block.nodes[join.end - 1],
        "It must compare one time of each side by >=, >, <= or <, joined to the rest by AND.",
    )


def _crosses(writer: Writer, block: Block, join: _Join, condition: Sequence[Node]) -> bool:
    """Return whether a condition is an inequality that may compare the two sides.

    It may unless all its columns are known to belong to one side.
    """
    if len(condition) == 1 and isinstance(condition[0], Group):
        condition = condition[0].inside
    signs = [node for node in condition if node.text in _INEQUALITIES]
    if len(signs) != 1 or condition[0].word == "NOT":
        return False
    sides = set(_sides(writer, block, join, condition))
    return None in sides or len(sides) > 1


def _sides(
    writer: Writer, block: Block, join: _Join, nodes: Sequence[Node]
) -> Iterator[str | None]:
    """Yield the side of each column that an expression names; None if unknown."""
    named = list(relations_of(block))
    left = [each for each in named if each.start < join.start]
    right = [each for each in named if each.start == join.relation]
    qualifiers = {bare_name(each.qualifier): "left" for each in left}
    qualifiers.update((bare_name(each.qualifier), "right") for each in right)
    end = join.relation + 1
    alias = alias_at(block.nodes, end, join.on) if is_group(block.nodes[join.relation]) else None
    if alias is not None:
        qualifiers[bare_name(alias.text)] = "right"
    columns: dict[str, str | None] = {}
    for side, relations in (("left", left), ("right", right)):
        for each in relations:
            relation = writer.relation(each.name)
            for column in relation.schema.names if relation is not None else ():
                before = columns.setdefault(column.lower(), side)
                columns[column.lower()] = side if before == side else None
    for name, qualified in _names(nodes):
        if qualified and name in qualifiers:
            yield qualifiers[name]
        else:
            yield columns.get(name)


def _names(nodes: Sequence[Node]) -> Iterator[tuple[str, bool]]:
    """Yield the first part of each name in an expression, and whether another part follows."""
    padded: list[Node | None] = [*nodes, None]
    before: Node | None = None
    for node, after in pairwise(padded):
        if isinstance(node, Group):
            yield from _names(node.inside)
        elif isinstance(node, Token) and node.kind in NAMES and not is_group(after):
            literal = isinstance(after, Token) and after.kind is TokenKind.STRING
            if not literal and (before is None or before.text != "."):
                yield bare_name(node.text), after is not None and after.text == "."
        before = node


_BEFORE = frozenset({"FROM", "JOIN"})


def at_pairs(cursor: Cursor) -> bool:
    """Whether the function is called here, as a relation."""
    if not cursor.at("AS_OF") or cursor.peek(1).text != "(" or not cursor.index:
        return False
    return cursor.previous.word in _BEFORE or cursor.previous.text == ","


def take_pairs(cursor: Cursor) -> PairsAsOf:
    """Take a call of the function.

    Raises:
        HeadraceError: ``invalid``, at the place, if it is malformed.
    """
    first = cursor.token
    cursor.expect("AS_OF")
    cursor.expect_symbol("(")
    pairs = _take_rows(cursor)
    time: str | None = None
    views: list[AskedView] = []
    cursor.expect_symbol(",")
    if cursor.at("DESCRIPTOR") and cursor.peek(1).text == "(":
        cursor.advance()
        cursor.expect_symbol("(")
        time, _ = cursor.identifier("the column of times")
        cursor.expect_symbol(")")
        cursor.expect_symbol(",")
    views.append(take_asked_view(cursor))
    while cursor.accept_symbol(","):
        views.append(take_asked_view(cursor))
    cursor.expect_symbol(")", '","')
    return PairsAsOf(pairs, time, tuple(views), cursor.span(first, cursor.previous))


def joined(
    pairs: PairsAsOf, rows: str, relations: Mapping[str, Relation]
) -> list[str | tuple[int, int]]:
    """Return a query of the same columns, which names the same relations, in place of a call.

    ``rows`` is the text of the rows' query.
    """
    parts: list[str | tuple[int, int]] = ["(SELECT __pairs.*"]
    for number, view in enumerate(pairs.views):
        parts += [f", __v{number}.{quote(c)} AS {quote(n)}" for c, n in _columns(view, relations)]
    parts += [f" FROM ({rows}) AS __pairs"]
    for number, view in enumerate(pairs.views):
        span = view.span or pairs.span
        parts += [" LEFT JOIN ", (span.start, span.end), f" AS __v{number} ON false"]
    return [*parts, ")"]


def _take_rows(cursor: Cursor) -> Span:
    """Take ``TABLE name``, ``TABLE (query)`` or ``(query)``; return the query."""
    first = cursor.token
    table = cursor.accept("TABLE")
    if not cursor.at_symbol("("):
        if not table:
            raise cursor.expected("TABLE", '"("')
        cursor.name("the name of a table")
        return cursor.span(first, cursor.previous)
    cursor.advance()
    first, depth = cursor.token, 1
    while not cursor.at_end():
        depth += {"(": 1, ")": -1}.get(cursor.token.text, 0)
        if not depth:
            break
        cursor.advance()
    if cursor.token is first:
        raise cursor.expected("a query")
    query = cursor.span(first, cursor.previous)
    cursor.expect_symbol(")")
    return query


def _columns(view: AskedView, relations: Mapping[str, Relation]) -> tuple[tuple[str, str], ...]:
    if view.columns is not None:
        return view.columns
    relation = relations.get(view.name.lower())
    if not isinstance(relation, Table | View):
        return ()
    key = key_of(relation)
    return tuple((name, name) for name in relation.schema.names if name not in key)
