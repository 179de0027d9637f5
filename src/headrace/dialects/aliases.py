"""Refuses words of other dialects after a relation, where Spark would read an alias.

``a LATEST JOIN b``, ``FROM t FINAL``, ``a OUTER JOIN b``: none of these words is reserved in Spark,
so the query would run with another meaning. Such a word is refused unless the query shows that it
is an alias: by AS, by quotes, or by a column that it qualifies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.asof_joins import opens_asof
from headrace.dialects.blocks import KINDS_OF_JOIN, NAMES
from headrace.dialects.tree import Group, Node
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.dialects.blocks import Block
    from headrace.dialects.writer import Edits, Scope, Writer

_ONE_ROW = "Read a table with a PRIMARY KEY: it has the last row of each key."
CLAUSES: dict[str, str] = {
    "CLUSTER": "",
    "DISTRIBUTE": "",
    "GROUP": "Write GROUP BY and expressions.",
    "HAVING": "Write HAVING and a condition.",
    "ORDER": "Write ORDER BY and expressions.",
    "SORT": "Write ORDER BY and expressions.",
    "WHERE": "Write WHERE and a condition.",
}
"""Words that begin a clause; they are aliases only if nothing follows."""

_AFTER_VALUE = CLAUSES | {"FROM": "Write FROM and a relation."}
"""The words that can directly follow the expressions of a SELECT."""

WORDS: dict[str, str] = CLAUSES | {
    "ALL": "",
    "ANY": "Join a subquery with one row of each key: QUALIFY row_number() OVER (...) = 1.",
    "APPLY": "Use JOIN LATERAL (...).",
    "ARRAY": "Use LATERAL VIEW explode(array) t AS element.",
    "ASOF": "Write ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k.",
    "CHANGES": "Use SUBSCRIBE to read the changes of a relation.",
    "CONNECT": "Use WITH RECURSIVE.",
    "EMIT": "EMIT CHANGES and EMIT FINAL end the statement.",
    "FETCH": "Write FETCH FIRST 10 ROWS ONLY, or LIMIT 10.",
    "FINAL": _ONE_ROW,
    "FORMAT": "",
    "GLOBAL": "Leave it out: all rows are in one place.",
    "LATEST": _ONE_ROW,
    "LIMIT": "Write LIMIT and a number.",
    "LOOKUP": "",
    "MATCH_CONDITION": "Write ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k.",
    "OFFSET": "Write OFFSET and a number.",
    "ONLY": "",
    "OUTER": "Write LEFT, RIGHT or FULL before OUTER JOIN.",
    "PARTITION": "",
    "PASTE": "Number the rows of both sides by row_number(), and join by the number.",
    "POSITIONAL": "Number the rows of both sides by row_number(), and join by the number.",
    "PREWHERE": "Use WHERE.",
    "QUALIFY": "Write QUALIFY and a condition.",
    "SAMPLE": "A sample is not deterministic: choose rows with WHERE.",
    "SETTINGS": "Use SET for settings of the session.",
    "STRAIGHT_JOIN": "Use JOIN.",
    "TABLESAMPLE": "A sample is not deterministic: choose rows with WHERE.",
    "TEMPORAL": "Use JOIN name FOR SYSTEM_TIME AS OF time, of a versioned table.",
    "TOP": "Use LIMIT.",
    "WINDOW": "Write WINDOW name AS (...), or WINDOW TUMBLING (SIZE 1 HOUR).",
    "WITHIN": "Write WITHIN and a length of time: WITHIN 1 HOUR.",
}
"""The words, each with an alternative, "" if there is no alternative."""

_AFTER_ALIAS = KINDS_OF_JOIN | {"JOIN", "ON", "USING", "LATERAL"}

_NO_BEGINNING = "|".join(sorted(_AFTER_ALIAS))
UNFINISHED = rf"\b(?:{'|'.join(_AFTER_VALUE)})(?=\s*(?:\Z|[),;]|--|/\*|(?:{_NO_BEGINNING})\b))"
"""Matches a word that begins a clause before text that cannot continue the clause."""


def aliases(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Refuse words of other dialects that Spark would read as aliases."""
    del scope
    first, last = block.clauses.get("FROM", (0, 0))
    if not last and block.nodes[block.end - 1].word in _AFTER_VALUE:
        _refuse_unfinished(writer, block)
    for at in range(first + 1, last):
        word = block.nodes[at].word
        if word not in WORDS or not _is_alias(block.nodes, at, first, last):
            continue
        if word.lower() in _qualifiers(block.nodes[block.start : block.end]):
            continue
        following = block.nodes[at + 1] if at + 1 < last else None
        joins = following is not None and following.word in _AFTER_ALIAS - {"ON", "USING"}
        shown = f"{word} JOIN" if joins else f"{word} after a relation"
        also = f"If it is an alias, write AS {block.nodes[at].text}."
        raise writer.refused(
            f"{shown} is not supported",
            f"{WORDS[word]} {also}".lstrip(),
            block.nodes[at],
            detail="Spark would read the word as an alias of the relation before it.",
        )
    return None


def _refuse_unfinished(writer: Writer, block: Block) -> None:
    """Refuse a clause's first word at the end of a SELECT without FROM."""
    before, last = block.nodes[block.end - 2 : block.end]
    if before.text in {",", "."} or before.word in {"AS", "SELECT", "DISTINCT", "ALL"}:
        return
    raise writer.refused(
        f"{last.text} with nothing after it is not supported",
        f"{_AFTER_VALUE[last.word]} If it is the name of the column, write AS {last.text}.",
        last,
        detail="Spark would read the word as the name of the column before it.",
    )


def _is_alias(nodes: Sequence[Node], at: int, first: int, last: int) -> bool:
    """Return whether Spark reads the word at a node as the alias of the relation before it."""
    before = nodes[at - 1]
    named = isinstance(before, Group) and before.text == "("
    named = named or (isinstance(before, Token) and before.kind in NAMES)
    if not named or opens_asof(nodes, at, last):
        return False
    start = at - 1
    if isinstance(before, Group) and start > first:
        function = nodes[start - 1]
        if isinstance(function, Token) and function.kind in NAMES:
            start -= function.word not in _INTRODUCING
    while start - 2 >= first and nodes[start - 1].text == ".":
        start -= 2
    if start > first and nodes[start - 1].text != "," and nodes[start - 1].word not in _INTRODUCING:
        return False
    return at + 1 == last or nodes[at + 1].text == "," or nodes[at + 1].word in _AFTER_ALIAS


_INTRODUCING = frozenset({"FROM", "JOIN", "LATERAL"})


def _qualifiers(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the qualifiers of columns, in lower case."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            yield from _qualifiers(node.inside)
        elif node.kind is TokenKind.WORD and at + 1 < len(nodes) and nodes[at + 1].text == ".":
            yield node.word.lower()
