"""The fence around Spark's planner: walks the nodes of a query, and refuses those not allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import TimestampNTZType, TimestampType, TimeType

from headrace.errors import Code, HeadraceError, Span, unknown
from headrace.planning.catalyst.allowed import ALWAYS_CLOCK, FUNCTIONS, REFUSED, SPECIAL_TIMES
from headrace.planning.catalyst.clock import NAMES
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import READ_BY_TASK, SUBQUERIES, items, kind_of, part
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from headrace.planning.catalyst.scala import Scala


LEAVES = (
    *("LogicalRDD", "OneRowRelation", "LocalRelation", "CTERelationRef", "UnionLoopRef"),
    READ_BY_TASK,
)
_CHILDLESS = ("AttributeReference", "Literal", "UnresolvedAttribute")

ALIASES = {"CurrentDate": "current_date", "CurrentTime": "current_time", "Now": "now"}

PARSED_NODES = frozenset(
    {
        "Aggregate",
        "AsOfJoin",
        "CTERelationDef",
        "CTERelationRef",
        "Deduplicate",
        "Distinct",
        "Except",
        "Except All",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Intersect All",
        "Join",
        "LateralJoin",
        "LimitAll",
        "LocalLimit",
        "LocalRelation",
        "Offset",
        "OneRowRelation",
        "PipeOperator",
        "Pivot",
        "Project",
        "RepartitionByExpression",
        "Sort",
        "SubqueryAlias",
        "Union",
        "UnresolvedHaving",
        "UnresolvedHint",
        "UnresolvedInlineTable",
        "UnresolvedQualify",
        "UnresolvedRelation",
        "UnresolvedSubqueryColumnAliases",
        "UnresolvedTVFAliases",
        "UnresolvedWith",
        "Unpivot",
        "Window",
        "WithCTE",
        "WithWindowDefinition",
    }
)
"""The nodes that a parsed query may have."""


GENERATORS = frozenset(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    variant_explode variant_explode_outer
    """.split()  # noqa: SIM905
)
"""The functions that can be called in FROM."""

NODE_WORDS = {
    "ScriptTransformation": "TRANSFORM",
    "Sample": "TABLESAMPLE",
    "RelationTimeTravel": "Spark's time travel",
}


NODE_HINTS = {"Sample": "Filter by a hash of a column, such as xxhash64(id) % 10 = 0."}
"""Alternatives to nodes that a parsed query may not have."""


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """A logical node, its kind, and its expressions with the names of their classes.

    Each access to the planner is a call into the JVM, so the properties of a node are read once.
    """

    handle: Any
    kind: str
    below: tuple[Any, ...]
    expressions: tuple[tuple[Any, str], ...]
    """Parents before children."""


def nodes(
    plan: Any,
    prepared: Callable[[Any], Any] = lambda plan: plan,
    seen: set[str] | None = None,
) -> Iterator[CheckedNode]:
    """Yield every logical node, including those of subqueries in expressions.

    ``prepared`` is applied to the whole plan, and to the plan of each subquery. With ``seen``, each
    plain view in an analysed plan is visited once, and its name added.
    """
    yield from _below(prepared(plan), prepared, seen)


def _below(
    plan: Any, prepared: Callable[[Any], Any], seen: set[str] | None
) -> Iterator[CheckedNode]:
    kind = str(plan.nodeName())
    if seen is not None and kind == "View":
        view = str(plan.desc().identifier().table())
        if view in seen:
            return
        seen.add(view)
    if kind == READ_BY_TASK:  # no query can name columns below
        yield CheckedNode(plan, kind, (), ())
        return
    below = tuple(items(plan.children()))
    node = CheckedNode(plan, kind, below, tuple(expressions_of(plan)))
    yield node
    if node.kind == "UnresolvedWith":
        for pair in items(plan.cteRelations()):
            yield from _below(part(pair, 1), prepared, seen)
    for child in below:
        yield from _below(child, prepared, seen)
    for expression, name in node.expressions:
        if name in SUBQUERIES:
            yield from nodes(expression.plan(), prepared, seen)


def relations_read(plan: Any, known: Mapping[str, int]) -> int:
    """Return how many relations a parsed query reads, counting each use, with views expanded.

    ``known`` has this number for each plain view, by name; it is computed for common table
    expressions.
    """
    kind = str(plan.nodeName())
    if kind == "UnresolvedRelation":
        return known.get(name_of(plan), 1)
    if kind == "UnresolvedWith":
        inside = dict(known)
        for pair in items(plan.cteRelations()):
            inside[str(part(pair, 0)).lower()] = relations_read(part(pair, 1), inside)
        known = inside
    below = [*items(plan.children())]
    below += [e.plan() for e, name in expressions_of(plan) if name in SUBQUERIES]
    return sum(relations_read(each, known) for each in below)


def relations_named(plan: Any, visible: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the dotted names, in lower case, of the relations in the text of a parsed query.

    The client needs the right to read each of these. What plain views read is not included, nor are
    common table expressions within their scope; ``visible`` are the names of those that surround
    the query.
    """
    kind = str(plan.nodeName())
    if kind == "UnresolvedRelation":
        name = name_of(plan)
        if name not in visible:
            yield name
    if kind == "UnresolvedWith":
        recursive = bool(plan.allowRecursion())
        for pair in items(plan.cteRelations()):
            alias = {str(part(pair, 0)).lower()}
            yield from relations_named(part(pair, 1), visible | alias if recursive else visible)
            visible |= alias
    for child in items(plan.children()):
        yield from relations_named(child, visible)
    for expression, name in expressions_of(plan):
        if name in SUBQUERIES:
            yield from relations_named(expression.plan(), visible)


def name_of(relation: Any) -> str:
    """Return the dotted name of an unresolved relation, in lower case."""
    return ".".join(str(part).lower() for part in items(relation.multipartIdentifier()))


def leaves(plan: Any) -> Iterator[Any]:
    """Yield the leaves of a plan, including those of subqueries."""
    for each in (plan, *items(plan.subqueriesAll())):
        yield from items(each.collectLeaves())


def expressions_of(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield the expressions of a logical node with the names of their classes."""
    pending = items(node.expressions())
    while pending:
        expression = pending.pop()
        name = kind_of(expression)
        yield expression, name
        if name not in _CHILDLESS:
            pending.extend(items(expression.children()))


def check_function(
    expression: Any,
    kind: str,
    query: Span,
    registered: Collection[str],
    missing: Collection[str],
    allowed: Collection[str] = (),
) -> None:
    """Refuse an unresolved call of a function that is unknown or not allowed.

    Users' functions can be called if they are registered; ``missing`` are recorded functions that
    are not registered. Functions in ``allowed`` can be called although they are refused in views.
    """
    if kind == "UnresolvedFunction":
        parts = [part.lower() for part in items(expression.nameParts())]
    else:
        parts = [str(expression.name().funcName()).lower()]
    name = parts[-1]
    span = origin(expression, query)
    if len(parts) > 1 and parts[:-1] not in (["builtin"], ["system", "builtin"]):
        raise HeadraceError(Code.INVALID, f'function "{".".join(parts)}" does not exist', span=span)
    if len(parts) == 1 and kind == "UnresolvedFunction" and name in registered:
        return
    if name in missing:
        raise not_registered(name, span)
    if name in NAMES or (name == "unix_timestamp" and items(expression.children())):
        return  # places of the clock are checked once the query is resolved
    if name in allowed:
        return
    if name in REFUSED:
        raise refused(name, span)
    if name not in FUNCTIONS:
        raise unknown("function", name, (*registered, *sorted(FUNCTIONS)), span=span)


def check_table_function(node: Any, query: Span, *, once: bool) -> None:
    """Refuse a table function in FROM unless it yields the elements of a value.

    In a query that is evaluated once, ``range`` is allowed, too.
    """
    name = ".".join(part.lower() for part in items(node.name()))
    if name in GENERATORS or (once and name == "range"):
        return
    hint = f"Functions allowed in FROM: {', '.join(sorted(GENERATORS))}."
    if name == "range":
        hint = "Use explode(sequence(0, 9)) AS t(id), whose bounds are both included."
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'the table-valued function "{name}" is not allowed in a query',
        hint=hint,
        span=origin(node, query),
    )


def check_lateral(scala: Scala, node: Any, query: Span) -> None:
    """Refuse an outer join that Spark's optimiser turns into an inner one.

    It turns ``LEFT JOIN LATERAL explode(a)`` into a generator, and drops the rows without elements.
    """
    if str(node.joinType().sql()) != "LEFT OUTER" or node.condition().isDefined():
        return
    if scala.may_hold("GENERATE", node.right().plan()):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "LEFT JOIN LATERAL of elements is not supported without ON",
            "Spark would leave out the rows that have no elements.",
            "Write ON true after it, or LATERAL VIEW OUTER.",
            origin(node, query),
        )


REGISTER = (
    "Register it: headrace.connect(..., functions=[...]), db.register, or headrace sql"
    " --functions FILE."
)
"""How to register a function that is in the catalog but not in this process."""


def not_registered(name: str, span: Span | None = None) -> HeadraceError:
    """Return the error of a query whose function is in the catalog but not registered."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f'function "{name}" is not registered',
        detail="The catalog has a record of it, but code is not stored.",
        hint=REGISTER,
        span=span,
    )


_CLOCK_TEXT = re.compile(rf"[\s'\"]*({'|'.join(SPECIAL_TIMES)})\b", re.IGNORECASE)
_TIMES = ("date", "timestamp", "timestamp_ntz")


def check_typed_literal(literal: Any, query: Span) -> None:
    """Refuse ``TIMESTAMP 'now'`` and similar literals, which the parser has replaced by a time."""
    if str(literal.dataType().typeName()) not in _TIMES:
        return
    span = origin(literal, query)
    found = re.match(r"\w+\s*(['\"].*)", span.source, re.DOTALL)
    if found is not None and _CLOCK_TEXT.match(found[1]):
        raise refused(_clock_word(found[1]), span)


def check_cast(cast: Any, query: Span) -> None:
    """Refuse a cast whose value depends on the time at which the query is planned.

    These are casts of some constant strings, and of a time of day to a timestamp, whose date is
    today.
    """
    value = cast.child()
    if _is_of_today(value, cast):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a cast of TIME to TIMESTAMP is not allowed in a view",
            detail="Its date is that of today, so the view would change with no event.",
            hint="Use make_timestamp(date, time) with a date of the row. For a TIME alone, use"
            " time_trunc('HOUR', t) for the start of the hour, and time_diff('HOUR', a, b) for the"
            " hours between two times.",
            span=origin(cast, query),
        )
    if str(cast.dataType().typeName()) not in _TIMES or not value.foldable():
        return
    if str(value.dataType().typeName()) != "string":
        return
    text = str(value.eval(None))
    if _CLOCK_TEXT.match(text):
        raise refused(_clock_word(text), origin(cast, query))


def _is_of_today(value: Any, cast: Any) -> bool:
    """Return whether a cast turns a time of day into a timestamp, including inside another type."""
    texts = str(value.dataType().simpleString()), str(cast.dataType().simpleString())
    if "time(" not in texts[0] or "timestamp" not in texts[1]:
        return False
    before, after = type_of(value), type_of(cast)
    return holds(before, (TimeType,)) and holds(after, (TimestampType, TimestampNTZType))


def _clock_word(text: str) -> str:
    found = _CLOCK_TEXT.match(text)
    return f"timestamp '{found[1].lower() if found else text}'"


def refused(name: str, span: Span) -> HeadraceError:
    """Return the refusal of a function by name, with the reason and an alternative."""
    why = REFUSED.get("now" if name.startswith("timestamp '") else name)
    called = f'function "{name}"' if " " not in name else name
    return HeadraceError(
        Code.UNSUPPORTED,
        f"{called} is not allowed in a query",
        detail=f"{name} is refused because {why.reason}." if why else "It is not deterministic.",
        hint=why.hint if why else None,
        span=span,
    )


def words(kind: str) -> str:
    """Split a class name such as ``ScriptTransformation`` into words."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in kind)
    return " ".join(spaced.split())


def view_file(name: str) -> str:
    """Return the name used as the file in the places of a plain view's text."""
    return f'view "{name}"'


def origin(node: Any, query: Span) -> Span:
    """Return the place of a node in the query, as far as Spark knows it."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    if not (start.isDefined() and stop.isDefined()):
        return query
    if origin.objectName().isDefined():
        text = str(origin.sqlText().get())
        return Span(text, start.get(), stop.get() + 1, view_file(origin.objectName().get()))
    begin, end = query.start + start.get(), query.start + stop.get() + 1
    if not query.start <= begin < end <= query.end:
        return query
    return Span(query.text, begin, end, query.file, query.line)


def check_clock(plan: Any, query: Span) -> None:
    """Refuse the clock where it cannot be maintained, including in subqueries."""
    for node in nodes(plan):
        for expression, name in node.expressions:
            if name in ALWAYS_CLOCK:
                raise clock_refused(expression, name, query)


def clock_refused(expression: Any, name: str, query: Span) -> HeadraceError:
    """Return the refusal of a clock expression, by the name of its class."""
    return refused(ALIASES.get(name, "current_timestamp"), origin(expression, query))
