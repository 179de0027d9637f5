"""A circuit as text: its operators, their arrangements, and the cost of a change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.algebra.operators import (
    InnerJoin,
    NearRows,
    RangePairs,
    SessionAggregate,
    TouchedSessions,
)
from headrace.planning.catalyst import plan
from headrace.planning.circuit.circuit import (
    Aggregate,
    Circuit,
    ComparedRows,
    Constant,
    Feedback,
    First,
    FoldedRows,
    Join,
    Loop,
    Match,
    Node,
    Output,
    Recompute,
    RelationDelta,
    Stateful,
    Stateless,
    Sum,
    TemporalRows,
    inputs,
    own_arrangements,
    shared,
)
from headrace.types import ArrangementId, RelationId

if TYPE_CHECKING:
    from headrace.algebra.zset import Layout


_NAME = re.compile(r"\b(pythonUDF\d+|_w\d+|_groupingexpression|_common_expr_\d+)\b")
"""The names that Spark generates for unnamed results, such as those of Python functions."""
_QUALIFIER = "__auto_generated_subquery_name."
"""The name that Spark generates for an unnamed subquery."""
_RETRACTED = "; if it removes a row, the rows within a gap of it, or of its session if that splits"

Sizes = Mapping[ArrangementId, tuple[int, int]]
"""The physical rows and bytes of each arrangement; empty for a view that does not exist."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """An arrangement that an operator uses: its own, or the contents of a ``relation``.

    ``rows`` and ``bytes`` are the stored sizes; None for a view that does not exist.
    """

    id: ArrangementId
    key: str
    columns: int
    relation: str | None
    rows: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Described:
    """A node of a circuit in words. ``again``: it was described before, with its inputs.

    ``depth`` counts from the output; inputs follow their users. ``number`` is the same whenever a
    node is described again. ``cost`` is the cost of a change, ``operator`` the name under which the
    node reports its work; both None for a node without state.
    """

    depth: int
    title: str
    number: int
    arrangements: tuple[Arranged, ...] = ()
    cost: str | None = None
    operator: str | None = None
    again: bool = False


def described(
    circuit: Circuit, name_of: Callable[[RelationId], str], sizes: Sizes
) -> Iterator[Described]:
    """Yield the nodes of a circuit, the output first."""
    yield from _described(circuit.output, 0, name_of, sizes, {})


def explain(
    circuit: Circuit,
    name_of: Callable[[RelationId], str],
    sizes: Sizes,
    notes: Callable[[str], Sequence[str]] = lambda _operator: (),
) -> list[str]:
    """Return the lines of the circuit: the output first, inputs indented below their users.

    ``notes`` returns further lines on a node with state, by the name of its operator.
    """
    return [line for node in described(circuit, name_of, sizes) for line in _lines(node, notes)]


def summary(circuit: Circuit) -> str:
    """Return a sentence or two: whether the work of an epoch is proportional to its changes."""
    rounds = " A recursion takes one more round for each level that a change reaches."
    return _recomputation(circuit) + (rounds if circuit.loops() else "")


def _recomputation(circuit: Circuit) -> str:
    recomputed = [n for n in circuit.stateful() if isinstance(n, Recompute) and n.reason]
    if not recomputed:
        return "No part is recomputed: the work of an epoch is proportional to its changes."
    whole = sum(not node.operator.layout.key for node in recomputed if not _of_sessions(node))
    verb = "recomputes" if len(recomputed) == 1 else "recompute"
    operators = counted(len(recomputed), "operator")
    sentence = f"{operators} {verb} the groups in which a row has changed"
    if whole:
        return f"{sentence}; {whole} of them with a single group, the whole input."
    return f"{sentence}; none recomputes its whole input."


def growing(circuit: Circuit) -> tuple[str, ...]:
    """Return what makes the cost of a change grow with the rows of a key, and what does not.

    Sentences without a full stop, each once.
    """
    found = {_growth(n): None for n in circuit.stateful() if isinstance(n, Recompute)}
    return tuple(each for each in found if each)


def _growth(node: Recompute) -> str:
    is_window = isinstance(node.plan, plan.Window)
    group = "partition" if is_window else "group"
    if _of_sessions(node):
        return (
            f"a change recomputes the sessions next to it, since {node.reason};"
            " a shorter gap keeps their rows few"
        )
    if isinstance(node.child, First) or not (node.reason or _is_running(node)):
        return ""  # of first rows there are few
    if not node.reason:
        return (
            "a change recomputes the rows after it in its partition, which all get other values;"
            " QUALIFY row_number() <= k reads the first ones only"
        )
    whole = "" if node.operator.layout.key else ", which is the whole input"
    less = (
        "LAG, LEAD, row_number() and frames of some rows do not"
        if is_window
        else "a group for each day or hour keeps them few"
    )
    return f"a change recomputes its {group}{whole}, since {node.reason}; {less}"


def _is_running(node: Recompute) -> bool:
    return isinstance(node.operator, NearRows) and node.operator.reach.running


def state(circuit: Circuit, sizes: Sizes) -> str:
    """Return a few sentences: the total of stored rows and bytes, and the shared parts."""
    own = circuit.arrangements()
    known = [sizes[id_] for id_ in own if id_ in sizes]
    rows, size = sum(r for r, _ in known), sum(b for _, b in known)
    total = f": {rows:,} rows, {size:,} bytes" if known else ""
    sentences = [f"{counted(len(own), 'arrangement')} stored{total}."]
    read = {each.relation for node in circuit.stateful() for each in shared(node).values()}
    if read:
        relations = counted(len(read), "relation")
        sentences.append(f"The rows of {relations} are read instead of copies.")
    again = sum(users > 1 for users in circuit.users().values())
    if again:
        parts = counted(again, "part")
        sentences.append(f"{parts} of the query used more than once, stored once.")
    return " ".join(sentences)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 epoch" or "1,200 epochs"."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def _described(
    node: Node | Output,
    depth: int,
    name_of: Callable[[RelationId], str],
    sizes: Sizes,
    seen: dict[Node | Output, int],
) -> Iterator[Described]:
    title = title_of(node, name_of)
    if node in seen:
        yield Described(depth, title, seen[node], again=True)
        return
    number = seen[node] = len(seen)
    arranged: tuple[Arranged, ...] = ()
    if isinstance(node, RelationDelta) and node.guard is not None:
        id_, columns = node.guard.arrangement, node.guard.operator.columns.names
        arranged = (Arranged(id_, ", ".join(columns), len(columns), None, *_size(sizes, id_)),)
    elif isinstance(node, Stateful):
        arranged = tuple(_arranged(node, name_of, sizes))
    operator = node.name if isinstance(node, Stateful) else None
    yield Described(depth, title, number, arranged, _cost_of(node), operator)
    for child in inputs(node):
        yield from _described(child, depth + 1, name_of, sizes, seen)


def _arranged(
    node: Stateful, name_of: Callable[[RelationId], str], sizes: Sizes
) -> Iterator[Arranged]:
    for read in {each.id: each for each in shared(node).values()}.values():
        columns, name = len(read.layout.columns.names), name_of(read.relation)
        key = ", ".join(read.layout.key)
        yield Arranged(read.id, key, columns, name, *_size(sizes, read.id))
    for id_, layout in own_arrangements(node).items():
        columns = len(layout.columns.names)
        yield Arranged(id_, _by(node, layout), columns, None, *_size(sizes, id_))


def _size(sizes: Sizes, id_: ArrangementId) -> tuple[int | None, int | None]:
    return sizes.get(id_, (None, None))


def _lines(node: Described, notes: Callable[[str], Sequence[str]]) -> Iterator[str]:
    indent = "  " * node.depth
    if node.again:
        yield f"{indent}{node.title}: used again, see above"
        return
    yield indent + node.title
    for each in node.arrangements:
        size = "" if each.rows is None else f", {each.rows:,} rows, {each.bytes:,} bytes"
        if each.relation is None:
            yield f"{indent}    stores {each.id} by ({each.key}): {each.columns} columns{size}"
        else:
            yield f"{indent}    reads the rows of {each.relation} by ({each.key}){size}"
    if node.cost is not None:
        yield f"{indent}    per change: {node.cost}"
    for note in notes(node.operator) if node.operator is not None else ():
        yield f"{indent}    {note}"


def _by(node: Stateful, layout: Layout) -> str:
    if layout.order and isinstance(node, TemporalRows | ComparedRows):
        return "time" if isinstance(node, TemporalRows) else with_calls(node, node.plan.bound.text)
    names = _column_names(node)
    return with_calls(node, ", ".join(names.get(name, name) for name in layout.key))


def _column_names(node: Stateful) -> dict[str, str]:
    """Return the query's names of the columns that a node's arrangements store."""
    match node:
        case Aggregate():
            return {f"g{i}": each.text for i, each in enumerate(node.plan.grouping)}
        case Join():
            sides = {"l": node.left.plan.attributes, "r": node.right.plan.attributes}
        case First() | FoldedRows() | Recompute():
            sides = {"x": node.child.plan.attributes}
        case _:
            return {}
    return {f"{side}{i}": a.name for side, columns in sides.items() for i, a in enumerate(columns)}


def title_of(node: Node | Output, name_of: Callable[[RelationId], str]) -> str:
    """Return what a node computes, in words, and its law if it is stateless or a join."""
    return f"{step_of(node, name_of)}{_law(node)}"


def step_of(node: Node | Output, name_of: Callable[[RelationId], str]) -> str:
    """Return what a node computes, in words."""
    return with_calls(node, _words(node, name_of))


def with_calls(node: Node | Output, text: str) -> str:
    """Replace generated names of Spark's plans in a text about a node's columns.

    Each becomes the expression that it names, such as a call of a Python function.
    """
    text = text.replace(_QUALIFIER, "")
    if isinstance(node, Stateless) and isinstance(node.plan, plan.Project):
        known = _generated(node.plan)
        text = _NAME.sub(lambda found: known.get(found[0], found[0]), text)
    for child in inputs(node) if _NAME.search(text) else ():
        text = with_calls(child, text)
    return text


def _generated(project: plan.Project) -> dict[str, str]:
    """Return the expressions named by a projection's generated names, without ambiguous ones."""
    found: dict[str, set[str]] = {}
    for attribute, expression in zip(project.attributes, project.expressions, strict=True):
        if _NAME.fullmatch(attribute.name) and expression.passes is None:
            words = expression.text.replace(_QUALIFIER, "").removesuffix(f" AS {attribute.name}")
            found.setdefault(attribute.name, set()).add(words)
    if project.calls:
        made = project.attributes[-len(project.calls) :]
        found |= {a.name: {call} for a, call in zip(made, project.calls, strict=True)}
    return {name: words.pop() for name, words in found.items() if len(words) == 1}


def _words(node: Node | Output, name_of: Callable[[RelationId], str]) -> str:
    match node:
        case RelationDelta():
            columns = ", ".join(a.name for a in node.plan.attributes)
            kept = "" if node.guard is None else ", without rows on which the query fails"
            return f"Source {name_of(node.plan.relation)} ({columns}){kept}"
        case Constant():
            return "Constant rows"
        case Stateless():
            return _stateless(node.plan)
        case Sum():
            return f"Union of {len(node.children)}"
        case Join():
            on = " AND ".join(
                f"{a.text} = {b.text}"
                for a, b in zip(node.plan.left_keys, node.plan.right_keys, strict=True)
            )
            rest = f", then {node.plan.residual.text}" if node.plan.residual else ""
            return f"{node.plan.kind.value.capitalize()}Join on {on or 'everything'}{rest}"
        case Match():
            side = node.operator.alone.name.lower()
            return f"Matches: the number of pairs of each row of the {side}"
        case Aggregate():
            by = ", ".join(e.text for e in node.plan.grouping)
            calls = ", ".join(call.text for call in node.plan.functions)
            kind = type(node.operator).__name__.replace("Global", "Group")
            stored = "; rows are not stored" if _only_sessions(node) else ""
            return f"{kind} by ({by}): {calls or 'distinct keys'}{_ties(node.plan)}{stored}"
        case First():
            by = ", ".join(e.text for e in node.plan.keys)
            order = ", ".join(
                key.expression.text + (" DESC" if key.descending else "") for key in node.plan.order
            )
            last = node.plan.skip + node.plan.count
            rows = f"{node.plan.rank} {node.plan.skip + 1} to {last}"
            stored = "; other rows are not stored" if node.operator.append_only else ""
            return f"FirstRows by ({by}): {rows}, ordered by {order}{stored}"
        case TemporalRows():
            return f"Temporal {node.plan.text}"
        case ComparedRows():
            return f"Compared {node.plan.condition.text}, with a value that may change"
        case Recompute() | FoldedRows():
            return _recomputed(node.plan)
        case Loop():
            last = node.plan.limit - 1
            return f"Loop, up to level {last}: a start, and a step over the previous level"
        case Feedback():
            columns = ", ".join(a.name for a in node.plan.attributes)
            return f"Feedback: the loop's changes in the round before ({columns})"
        case Output():
            return "Integrate: the view's rows"


def _of_sessions(node: Recompute) -> bool:
    """Whether a recomputation is of sessions, whatever their key is."""
    return isinstance(node.operator, TouchedSessions)


def _only_sessions(node: Aggregate) -> bool:
    """Whether an aggregate keeps sessions without their rows."""
    return isinstance(node.operator, SessionAggregate) and node.operator.append_only


def _law(node: Node | Output) -> str:
    match node:
        case Stateless() if isinstance(node.plan, plan.Project) and node.plan.calls:
            return ": called for each changed row, linear"
        case Stateless() | Sum():
            return ", linear"
        case Join() if node.plan.kind is plan.JoinKind.INNER:
            return ", bilinear"
        case _:
            return ""


def _recomputed(node: plan.Aggregate | plan.Window | plan.Fold) -> str:
    match node:
        case plan.Fold():
            by = ", ".join(e.text for e in node.keys)
            order = ", ".join(key.expression.text for key in node.order)
            return f"Fold {node.function} by ({by}), ordered by {order}"
        case plan.Aggregate():
            by = ", ".join(e.text for e in node.grouping)
            calls = ", ".join(call.text for call in node.functions)
            return f"Aggregate by ({by}): {calls or 'distinct keys'}{_ties(node)}"
        case plan.Window():
            return f"Window {node.text}{_ties(node)}"


def _ties(node: plan.Aggregate | plan.Window) -> str:
    by = ", ".join(tie.text for tie in node.ties)
    return f"; ties ordered by {by}" if by else ""


def _stateless(node: plan.Project | plan.Filter | plan.Expand | plan.Generate) -> str:
    match node:
        case plan.Project() if node.calls:
            return f"Python {', '.join(node.calls)}"
        case plan.Project():
            return f"Project ({', '.join(a.name for a in node.attributes)})"
        case plan.Filter():
            return f"Filter {node.condition.text}"
        case plan.Expand():
            return f"Expand into {len(node.projections)}"
        case plan.Generate():
            return f"Generate {node.text}"


def _cost_of(node: Node | Output) -> str | None:
    if isinstance(node, RelationDelta) and node.guard is not None:
        return "one lookup among the rows in quarantine; no recompute"
    if isinstance(node, Loop):
        return "one round for each level that it reaches"
    return _cost(node) if isinstance(node, Stateful) else None


def _cost(node: Stateful) -> str:
    match node:
        case Join(operator=InnerJoin(pairs=RangePairs())):
            return (
                "the rows of the other side within its range, and the pairs that it adds or"
                " removes; no recompute"
            )
        case Join() if not node.plan.left_keys:
            return "all rows of the other side, since the join has no equality; no recompute"
        case Join():
            return (
                "one lookup on the other side, and the pairs that it adds or removes; no recompute"
            )
        case Match():
            return "one lookup of the row's number of pairs; no recompute"
        case Aggregate():
            return _cost_of_totals(node)
        case First():
            return "reads the first rows of its group; no recompute"
        case FoldedRows():
            return (
                "one call from the last state of its key; before the last event, a call for each"
                " event since the nearest checkpoint, about twice as many as come after"
            )
        case TemporalRows():
            return "one row stored for each time at which it will enter or leave; no recompute"
        case ComparedRows():
            return (
                "one row stored by its bound; if the value changes, the rows between the old and"
                " the new value; no recompute"
            )
        case Recompute() if _is_running(node):
            return "recomputes the rows after it in its group, since each counts those before it"
        case Recompute(operator=NearRows()):
            return "reads the rows near it, and recomputes those that have it in their frame"
        case Recompute() if _of_sessions(node):
            return f"recomputes the sessions next to it, since {node.reason}"
        case Recompute():
            scope = "its group," if node.operator.layout.key else "all rows, which are one group,"
            return f"recomputes {scope} since {node.reason}"
        case Output():
            return "one row written; no lookup, no recompute"


def _cost_of_totals(node: Aggregate) -> str:
    if not isinstance(node.operator, SessionAggregate):
        return "one lookup of the totals of its group, at most two output rows; no recompute"
    late = "" if _only_sessions(node) else _RETRACTED
    return f"one lookup of the sessions next to it, which it may unite; no recompute{late}"
