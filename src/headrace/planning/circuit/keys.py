"""Unique keys of a plan's rows: sets of columns in which no two rows are known to agree.

Keys follow from the keys of tables and from the form of the query: groups, first rows, matches of a
join. Constants, equal columns and disjoint intervals are followed from node to node, since keys can
follow from them. A key that is not recognised is left out.

Properties of a plan's rows that follow from the plan alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import assert_never

from headrace.planning.catalyst import implied as facts
from headrace.planning.catalyst import plan
from headrace.types import RelationId


def partitioning(node: plan.Plan) -> tuple[frozenset[int], ...] | None:
    """Return the columns by whose hash a delta is partitioned, or None if it is not.

    Each column is given as the set of attributes with its value, by id; it may be empty.
    """
    match node:
        case plan.FirstRows():
            passed = tuple(key.passes for key in node.keys)
            return tuple(frozenset() if p is None else frozenset({p}) for p in passed)
        case plan.Fold():
            return tuple(frozenset({attribute.id}) for attribute in node.attributes[:-1])
        case plan.Filter():
            return partitioning(node.child)
        case plan.Project():
            return _renamed_sets(partitioning(node.child), node.expressions, node.attributes)
        case plan.Aggregate() if recompute_reason(node) is None:
            attributes = enumerate(node.grouping_attributes)
            grouping = tuple(frozenset({a.id}) for i, a in attributes if i != node.session)
            return _renamed_sets(grouping, node.results, node.attributes)
        case plan.Join():
            return _by_join_key(node)
        case _:
            return None


def is_append_only(node: plan.Plan, only_grows: Callable[[RelationId], bool]) -> bool:
    """Whether no row of a plan is ever retracted."""
    match node:
        case plan.Scan():
            return only_grows(node.relation)
        case plan.Constant() | plan.LoopRef():
            return True  # a loop is append-only if everything else in it is
        case plan.Project() | plan.Filter() | plan.Expand() | plan.Generate() | plan.Loop():
            return is_append_only(node.child, only_grows)
        case plan.UnionAll():
            return all(is_append_only(child, only_grows) for child in node.children)
        case plan.Join():
            sides = (node.left, node.right)
            inner = node.kind is plan.JoinKind.INNER
            return inner and all(is_append_only(side, only_grows) for side in sides)
        case _:
            return False


def reads_loop(node: plan.Plan) -> bool:
    """Whether a plan reads the rows of a recursion."""
    return isinstance(node, plan.LoopRef) or any(map(reads_loop, node.inputs))


def recompute_reason(node: plan.Aggregate) -> str | None:
    """Return why changed groups of an aggregate are recomputed, or None if they are not."""
    if node.session is not None and not node.kept:
        return "sessions merge and split when rows change"
    for call in node.functions:
        if call.needs_rows is not None:
            return f"{call.text} {call.needs_rows}"
        alone = call.distinct or call.adds_floats or call.pick or call.percentiles
        if alone and node.session is not None:
            return f"{call.text} is not kept by session"
    return None


def recomputes_sessions(node: plan.Aggregate) -> bool:
    """Whether sessions are recomputed by themselves, and not all those of their key together.

    Beside DISTINCT, Spark unites sessions before it evaluates arguments: these would differ if they
    read the session.
    """
    if node.session is None or not node.kept:
        return False
    session = node.grouping[node.session].passes
    read = {id_ for use in node.uses() if use.field == "functions" for id_ in use.columns}
    return session not in read or not any(call.distinct for call in node.functions)


def _by_join_key(node: plan.Join) -> tuple[frozenset[int], ...] | None:
    if node.residual is not None and node.kind is not plan.JoinKind.INNER:
        return None  # the last operator partitions its rows by all columns
    match node.kind:
        case plan.JoinKind.INNER:
            pairs = list(zip(node.left_keys, node.right_keys, strict=True))
        case plan.JoinKind.FULL:
            return None
        case plan.JoinKind.RIGHT:
            pairs = [(key, key) for key in node.right_keys]
        case _:
            pairs = [(key, key) for key in node.left_keys]
    return tuple(frozenset(e.passes for e in pair if e.passes is not None) for pair in pairs)


def _renamed_sets(
    columns: tuple[frozenset[int], ...] | None,
    expressions: tuple[plan.Expression, ...],
    attributes: tuple[plan.Attribute, ...],
) -> tuple[frozenset[int], ...] | None:
    if columns is None:
        return None
    pairs = list(zip(expressions, attributes, strict=True))
    return tuple(frozenset(a.id for e, a in pairs if e.passes in column) for column in columns)


KeyOf = Callable[[RelationId], tuple[int, ...] | None]
"""Returns the positions of the columns of a relation's unique key, or None if no key is known.

An empty key means at most one row.
"""

_Part = int | tuple[int, int]
"""A column of a key, or a pair of columns: the first one that is not NULL is part of the key."""
_Key = tuple[_Part, ...]

_MOST = 8
"""Keys that are followed per node."""


@dataclass(frozen=True, slots=True)
class InferredKey:
    """The key of a view follows from its query; among several keys, ``preferred`` is chosen."""

    preferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenKey:
    """The known key of a view: its columns (empty for at most one row), or None without a key."""

    columns: tuple[str, ...] | None


def unique_columns(
    query: plan.Plan, key_of: KeyOf, preferred: tuple[int, ...] = ()
) -> tuple[int, ...] | None:
    """Return the positions of the columns of a unique key, or None if no key is known.

    The ``preferred`` key is chosen if it is one, else a key with the fewest columns. An empty key
    means at most one row.
    """
    ids = [attribute.id for attribute in query.attributes]
    found = [tuple(map(ids.index, key)) for key in _whole(known(query, key_of).keys)]
    if any(set(key) == set(preferred) for key in found):
        return preferred
    return min((key for key in found if key), key=len, default=() if found else None)


def is_unique(query: plan.Plan, key_of: KeyOf, columns: Iterable[int]) -> bool:
    """Whether the columns at some positions are a unique key of a plan."""
    ids = {query.attributes[position].id for position in columns}
    return any(ids.issuperset(key) for key in _whole(known(query, key_of).keys))


@dataclass(frozen=True, slots=True)
class Known:
    """Facts about the rows of a plan; columns are ids of its attributes.

    ``fixed`` maps columns with a single value to its text; ``same`` are sets of columns that are
    equal in each row. ``intervals`` are sets of columns with an interval: those of rows that agree
    in the columns do not overlap. ``windows`` are columns of windows that each of their ends
    determines.
    """

    keys: tuple[_Key, ...] = ()
    fixed: Mapping[int, str] = field(default_factory=dict)
    same: tuple[frozenset[int], ...] = ()
    intervals: tuple[tuple[frozenset[int], facts.IntervalBounds], ...] = ()
    windows: frozenset[int] = frozenset()

    def alike(self, id_: int) -> frozenset[int]:
        """Return a column and the columns that equal it in each row."""
        return next((each for each in self.same if id_ in each), frozenset({id_}))

    def is_fixed(self, id_: int) -> bool:
        """Whether a column has one value in all rows."""
        return not self.fixed.keys().isdisjoint(self.alike(id_))

    def bounds(self, given: facts.IntervalBounds, interval: facts.IntervalBounds) -> bool:
        """Whether two pairs of columns are bounds of the same interval."""
        return (
            given.ascending == interval.ascending
            and given.first in self.alike(interval.first)
            and given.next in self.alike(interval.next)
        )

    def covers(self, columns: Iterable[int], key: _Key) -> bool:
        """Whether the values of some columns determine those of a key."""
        given = {each for id_ in columns for each in self.alike(id_)}
        return all(isinstance(p, int) and (p in given or self.is_fixed(p)) for p in key)


_NOTHING = Known()


def known(node: plan.Plan, key_of: KeyOf) -> Known:
    """Return the facts about the rows of a plan."""
    match node:
        case plan.Scan():
            return _of_scan(node, key_of)
        case plan.Constant():
            return Known(keys=((),)) if facts.has_one_row(node) else _NOTHING
        case plan.Loop() | plan.LoopRef():
            return _NOTHING
        case plan.Filter():
            return _filtered(known(node.child, key_of), node.condition)
        case plan.Project():
            below = known(node.child, key_of)
            return _projected(below, node.expressions, node.attributes)
        case plan.Aggregate():
            return _aggregated(node, known(node.child, key_of))
        case plan.FirstRows():
            return _first(node, known(node.child, key_of))
        case plan.Selection():
            return known(node.child, key_of)
        case plan.Window():
            return _numbered(node, known(node.child, key_of))
        case plan.Fold():
            return Known(keys=(tuple(attribute.id for attribute in node.attributes[:-1]),))
        case plan.Join():
            return _joined(node, known(node.left, key_of), known(node.right, key_of))
        case plan.UnionAll():
            return _united(node, [known(child, key_of) for child in node.children])
        case plan.Expand():
            same, windows = facts.unchanged(node)
            below = _kept(known(node.child, key_of), same)
            keys = tuple((*key, window) for key in below.keys for window in sorted(windows))
            return replace(below, keys=keys, intervals=(), windows=below.windows | windows)
        case plan.Generate():
            shown = frozenset(attribute.id for attribute in node.attributes)
            below, number = _kept(known(node.child, key_of), shown), facts.position(node)
            keys = () if number is None else tuple((*key, number) for key in below.keys)
            return replace(below, keys=keys, intervals=())
        case _:
            assert_never(node)


def _whole(keys: Iterable[_Key]) -> Iterator[tuple[int, ...]]:
    """Yield the keys that are columns."""
    for key in keys:
        ids = tuple(part for part in key if isinstance(part, int))
        if len(ids) == len(key):
            yield ids


def _of_scan(node: plan.Scan, key_of: KeyOf) -> Known:
    positions = key_of(node.relation)
    if positions is None or not set(positions) <= set(node.columns):
        return _NOTHING
    ids = dict(zip(node.columns, (a.id for a in node.attributes), strict=True))
    return Known(keys=(tuple(ids[position] for position in positions),))


def _kept(below: Known, shown: frozenset[int]) -> Known:
    """Return the facts that remain if only some columns are kept."""
    columns = {id_: id_ for id_ in shown}
    return _with(below, columns, columns, {})


def _filtered(below: Known, condition: plan.Expression) -> Known:
    found = facts.implied(condition.handle)
    keys = list(below.keys)
    for span, depends_on in found.within:
        if not depends_on:  # one value for all rows, which is in one interval of each
            keys += [tuple(sorted(by)) for by, each in below.intervals if below.bounds(span, each)]
    return replace(
        below,
        keys=_few(keys),
        fixed={**below.fixed, **found.fixed},
        same=_classes((*below.same, *map(frozenset, found.equal))),
    )


def _projected(
    below: Known,
    expressions: Sequence[plan.Expression],
    attributes: Sequence[plan.Attribute],
    determines: Callable[[plan.Expression], int | None] | None = None,
) -> Known:
    """Return the facts about a projection of rows with known facts.

    ``determines`` replaces the function that returns the column determined by an expression.
    """
    passed: dict[int, int] = {}
    carried: dict[int, int] = {}
    pairs: dict[frozenset[int], int] = {}
    fixed: dict[int, str] = {}
    equal: dict[int, list[int]] = {}
    wanted = {frozenset(p) for key in below.keys for p in key if not isinstance(p, int)}
    made = set()
    for expression, attribute in zip(expressions, attributes, strict=True):
        if expression.passes is not None:
            passed.setdefault(expression.passes, attribute.id)
            equal.setdefault(min(below.alike(expression.passes)), []).append(attribute.id)
            continue
        if facts.is_window(attribute):
            made.add(attribute.id)
        id_ = facts.determines(expression, below.windows)
        if id_ is None and determines is not None:
            id_ = determines(expression)
        text = facts.constant(expression.handle)
        if id_ is not None:
            carried.setdefault(id_, attribute.id)
        elif text is not None:
            fixed[attribute.id] = text
        elif wanted and (pair := facts.first_present(expression)) is not None:
            pairs[frozenset(pair)] = attribute.id
    found = _with(below, passed, {**carried, **passed}, pairs)
    return replace(
        found,
        fixed={**found.fixed, **fixed},
        same=_classes([*found.same, *(frozenset(ids) for ids in equal.values())]),
        windows=found.windows | made,
    )


def _with(
    below: Known,
    passed: Mapping[int, int],
    carried: Mapping[int, int],
    pairs: Mapping[frozenset[int], int],
) -> Known:
    """Return the facts about rows under other columns.

    ``passed`` maps columns to a new column with the same value, ``carried`` also to columns that
    determine it. ``pairs`` maps two columns to the column with the first of them that is not NULL.
    """

    def of(id_: int, names: Mapping[int, int]) -> int | None:
        alike = (id_, *sorted(below.alike(id_)))
        return next((names[each] for each in alike if each in names), None)

    def place(part: _Part) -> _Part | None:
        if isinstance(part, int):
            return of(part, carried)
        if frozenset(part) in pairs:
            return pairs[frozenset(part)]
        both = passed.get(part[0]), passed.get(part[1])
        return None if both[0] is None or both[1] is None else (both[0], both[1])

    keys = []
    for key in below.keys:
        parts = [
            (part, place(part))
            for part in key
            if not (isinstance(part, int) and of(part, carried) is None and below.is_fixed(part))
        ]
        named = [new for _, new in parts if new is not None]
        if len(named) == len(parts):
            keys.append(tuple(dict.fromkeys(named)))
    intervals = []
    for by, span in below.intervals:
        ids = [of(id_, carried) for id_ in sorted(by) if not below.is_fixed(id_)]
        first, after = of(span.first, passed), of(span.next, passed)
        if None not in ids and first is not None and after is not None:
            own = frozenset(id_ for id_ in ids if id_ is not None)
            intervals.append((own, facts.IntervalBounds(first, after, span.ascending)))
    fixed = {passed[id_]: text for id_, text in below.fixed.items() if id_ in passed}
    same = [frozenset(passed[id_] for id_ in each if id_ in passed) for each in below.same]
    windows = frozenset(passed[id_] for id_ in below.windows if id_ in passed)
    return Known(_few(keys), fixed, _classes(same), tuple(intervals), windows)


def _aggregated(node: plan.Aggregate, below: Known) -> Known:
    by = [facts.determines(expression, below.windows) for expression in node.grouping]
    own = [attribute.id for attribute in node.grouping_attributes]
    pairs = [(id_, mine) for id_, mine in zip(by, own, strict=True) if id_ is not None]
    columns: dict[int, int] = {}
    for id_, mine in pairs:
        columns.setdefault(id_, mine)
    groups = _with(below, {}, columns, {})  # a group of a key's columns has one row
    exact = [
        (expression.passes, mine)
        for expression, mine in zip(node.grouping, own, strict=True)
        if expression.passes is not None
    ]
    grouped = Known(
        _few((tuple(own), *groups.keys)),
        {mine: below.fixed[id_] for id_, mine in exact if id_ in below.fixed},
        windows=frozenset(mine for id_, mine in exact if id_ in below.windows),
    )
    if node.session is None:
        return _projected(grouped, node.results, node.attributes)
    # Sessions of one group do not overlap, so that either end distinguishes them. Sessions of
    # different groups may overlap, so this holds for the results of this node only.
    session = own[node.session]
    ended = replace(grouped, windows=grouped.windows | {session})
    found = _projected(
        ended, node.results, node.attributes, lambda each: facts.merged_session(each, node)
    )
    shown = zip(node.results, node.attributes, strict=True)
    passed = {attribute.id for result, attribute in shown if result.passes == session}
    return replace(found, windows=found.windows - passed)


def _first(node: plan.FirstRows, below: Known) -> Known:
    ids = [facts.determines(key, below.windows) for key in node.keys]
    by = tuple(id_ for id_ in ids if id_ is not None)
    if node.rank != "row_number" or node.count != 1 or len(by) != len(ids):
        return below
    return replace(below, keys=_few((*below.keys, by)))


def _numbered(node: plan.Window, below: Known) -> Known:
    ids = [facts.determines(key, below.windows) for key in node.partition]
    by = tuple(id_ for id_ in ids if id_ is not None)
    if len(by) != len(ids):
        return replace(below, intervals=())
    numbers = [(*by, number) for number in facts.numbers(node)]
    spans = tuple((frozenset(by), span) for span in facts.following(node))
    return replace(below, keys=_few((*below.keys, *numbers)), intervals=(*below.intervals, *spans))


def _joined(node: plan.Join, left: Known, right: Known) -> Known:
    kind = node.kind
    if kind.of_one_side:
        return left
    within: tuple[tuple[facts.IntervalBounds, frozenset[int]], ...] = ()
    equal: list[frozenset[int]] = []
    fixed: dict[int, str] = {}
    if node.residual is not None:
        found = facts.implied(node.residual.handle)
        within = found.within
        if kind is plan.JoinKind.INNER:
            equal, fixed = [frozenset(pair) for pair in found.equal], dict(found.fixed)
    if kind is plan.JoinKind.INNER:
        equal += [
            frozenset({a.passes, b.passes})
            for a, b in zip(node.left_keys, node.right_keys, strict=True)
            if a.passes is not None
            and b.passes is not None
            and facts.comparable(a.handle, b.handle)
        ]
    left_once = _is_found_once(left, node.left_keys, node.right.attributes, within)
    right_once = _is_found_once(right, node.right_keys, node.left.attributes, within)
    keys: list[_Key] = []
    if right_once and not kind.keeps_right:
        keys += left.keys
    if left_once and not kind.keeps_left:
        keys += right.keys
    if kind is plan.JoinKind.FULL:
        keys += _of_full(node, left, right)
    elif not keys:
        keys += [a + b for a, b in product(left.keys, right.keys)]
    # Columns of a side that are filled with NULLs have other values there than in its own rows.
    sides = [left] if kind in (plan.JoinKind.INNER, plan.JoinKind.LEFT) else []
    sides += [right] if kind in (plan.JoinKind.INNER, plan.JoinKind.RIGHT) else []
    every = {id_: text for side in sides for id_, text in side.fixed.items()}
    return Known(
        _few(keys),
        {**every, **fixed},
        _classes([*(each for side in sides for each in side.same), *equal]),
        windows=left.windows | right.windows,
    )


def _is_found_once(
    side: Known,
    keys: Sequence[plan.Expression],
    others: Sequence[plan.Attribute],
    within: Iterable[tuple[facts.IntervalBounds, frozenset[int]]],
) -> bool:
    """Whether a row of the other side of a join, with columns ``others``, has at most one match."""
    found = (facts.determines(key, side.windows) for key in keys)
    on = {id_ for id_ in found if id_ is not None}
    if any(side.covers(on, key) for key in side.keys):
        return True
    own = {attribute.id for attribute in others}
    return any(
        side.bounds(span, each) and depends_on <= own and side.covers(on, tuple(by))
        for span, depends_on in within
        for by, each in side.intervals
    )


def _of_full(node: plan.Join, left: Known, right: Known) -> Iterator[_Key]:
    """Yield the keys of a full join: its join columns, or a key of each side together.

    A row without a match has NULL in all columns of the other side. If keys may be NULL, rows of
    the two sides could not be distinguished.
    """
    present = {a.id for side in (node.left, node.right) for a in side.attributes if not a.nullable}
    pairs = [
        (a.passes, b.passes)
        for a, b in zip(node.left_keys, node.right_keys, strict=True)
        if a.passes is not None and b.passes is not None and facts.comparable(a.handle, b.handle)
    ]
    on = [{pair[side] for pair in pairs} for side in (0, 1)]
    unique = all(
        any(side.covers(ids, key) for key in side.keys)
        for side, ids in zip((left, right), on, strict=True)
    )
    whole = node.residual is None and len(pairs) == len(node.left_keys)
    if whole and unique and any(ids and ids <= present for ids in on):
        yield tuple(pairs)
    for a, b in product(_whole(left.keys), _whole(right.keys)):
        if not present.isdisjoint((*a, *b)):
            yield (*a, *b)


def _united(node: plan.UnionAll, below: Sequence[Known]) -> Known:
    """Return the facts about a union: its key has columns that distinguish the inputs."""
    ids = [[attribute.id for attribute in child.attributes] for child in node.children]
    own = [attribute.id for attribute in node.attributes]
    texts = {
        place: [each.fixed[of[place]] for each, of in zip(below, ids, strict=True)]
        for place in range(len(own))
        if all(of[place] in each.fixed for each, of in zip(below, ids, strict=True))
    }
    fixed = {own[place]: found[0] for place, found in texts.items() if len(set(found)) == 1}
    apart = _apart(texts, len(below))
    first = [next(_whole(each.keys), None) for each in below]
    if apart is None or None in first:
        return Known(fixed=fixed)
    within = {
        of.index(id_) for key, of in zip(first, ids, strict=True) if key is not None for id_ in key
    }
    places = (*apart, *sorted(within - set(apart)))
    return Known((tuple(own[place] for place in places),), fixed)


def _apart(texts: Mapping[int, Sequence[str]], count: int) -> tuple[int, ...] | None:
    """Return the positions of constants that distinguish the inputs, one position if possible."""
    for place, found in texts.items():
        if len(set(found)) == count:
            return (place,)
    every = tuple(place for place, found in texts.items() if len(set(found)) > 1)
    rows = set(zip(*(texts[place] for place in every), strict=True))
    return every if every and len(rows) == count else None


def _few(keys: Iterable[_Key]) -> tuple[_Key, ...]:
    """Return distinct keys, at most as many as are followed."""
    found = {frozenset(key): key for key in reversed(list(keys))}
    return tuple(islice(reversed(found.values()), _MOST))


def _classes(given: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return sets of equal columns; overlapping sets are merged."""
    found: list[frozenset[int]] = []
    for each in given:
        apart = [other for other in found if other.isdisjoint(each)]
        found = [*apart, each.union(*(other for other in found if other not in apart))]
    return tuple(each for each in found if len(each) > 1)
