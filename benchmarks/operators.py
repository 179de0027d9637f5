"""What one step of each operator costs, by the number of changed rows: no Spark, no files.

Each operator steps over arrangements of a hundred thousand rows in three runs. Besides the time of
a step it counts the work: consolidations, sorts, kernels of Arrow called, physical rows read.

Another checkout is measured by the same file, in turns with this one, each in a process of its
own: ``python -m benchmarks.operators`` prints the figures of the ``headrace`` that it imports.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.algebra.operators import (
    BOUND,
    CLOCK,
    ERROR,
    INIT,
    MATCHES,
    OFFSET,
    REFUSED,
    ROW,
    SINCE,
    VALUE,
    Compared,
    Distinct,
    Emits,
    End,
    Extremum,
    FirstRows,
    Fold,
    FrameReach,
    GlobalAggregate,
    GroupAggregate,
    InnerJoin,
    Integrate,
    Matches,
    NearRows,
    OuterJoin,
    Pairs,
    Quarantine,
    Recursion,
    RowKind,
    SemiJoin,
    SessionAggregate,
    StepResult,
    Temporal,
    TouchedGroups,
    TouchedSessions,
    Upsert,
    counts_layout,
    violation,
)
from headrace.algebra.operators.temporal import DUE, SIGN
from headrace.algebra.spine import Run, Spine
from headrace.algebra.spine.first_rows import Reads
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

STATE = 100_000
CHANGES = (1, 1_000, 100_000)
_RUNS = (0.9, 0.99)
"""The shares of the state in the first run, and in the first two."""
_MANY_RUNS = (
    0.92,
    *(0.92 + 0.01 * i for i in range(1, 8)),
    *(0.99 + 0.001 * i for i in range(1, 8)),
)
"""The same of 16 runs, as a spine has between two merges."""
_GROUP = 4
"""How many rows a group of several rows has."""
_KEPT = 0.75
"""The share of a change that inserts; the rest retracts rows that are there."""
_SECONDS = 0.4
_LEAST, _MOST = 3, 2000
ROUNDS = 3
HERE = Path(__file__).resolve().parent.parent
"""The checkout of this file."""
COUNTERS = ("calls", "consolidations", "sorts", "kernels", "rows_read", "rows_out")
_CALLS = {"call", "c_call"}
_SUMS = {
    getattr(ZSet, name).__code__
    for name in ("consolidated", "grouped", "summed")
    if hasattr(ZSet, name)
}
_SORTS = {"ndarray.argsort", "ndarray.sort"}

_WEIGHT = pa.field(WEIGHT, pa.int64(), nullable=False)
COUNT = pa.schema([_WEIGHT])
PAYMENT = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("account", pa.int64()),
        pa.field("city", pa.string()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("at", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Case:
    """An operator, what it has kept, and what makes a change of it of some rows."""

    name: str
    step: Callable[[tuple[pa.Table, ...], tuple[Spine, ...]], Any]
    before: tuple[Spine, ...]
    change: Callable[[int], tuple[pa.Table, ...]]


def hashes_of(numbers: Ints) -> Ints:
    """Return a well-mixed hash of each number (the finalizer of SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def payments(ids: Ints) -> dict[str, Any]:
    """Return the columns of the payments with some ids; an id decides all else."""
    cents = (ids * 7919) % 100_000
    amounts = np.stack([cents, np.zeros_like(cents)], axis=1)
    decimals = pa.Array.from_buffers(
        pa.decimal128(12, 2), len(ids), [None, pa.py_buffer(np.ascontiguousarray(amounts))]
    )
    cities = np.array([f"city {i}" for i in range(1000)])
    return {
        "id": ids,
        "account": ids // _GROUP,
        "city": pa.array(cities[ids % 1000], pa.string()),
        "amount": decimals,
        "at": (ids * 104_729) % 1_000_003,
    }


def table(layout: Layout, columns: dict[str, Any], *more: pa.Field) -> pa.Table:
    """Return columns of a layout as a table in one piece."""
    schema = pa.schema([*layout.schema, *more])
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def arranged(
    layout: Layout, columns: dict[str, Any], hashes: Ints, shares: tuple[float, ...] = _RUNS
) -> Spine:
    """Return rows as a spine of runs, that end at some shares of the rows."""
    rows = ZSet.of(layout, table(layout, {HASH: hashes, **columns}))
    bounds = [0, *(int(rows.rows * share) for share in shares), rows.rows]
    mixed = np.random.default_rng(5).permutation(rows.rows)
    parts = [mixed[start:stop] for start, stop in itertools.pairwise(bounds)]
    return Spine(layout, tuple(Run.of(rows.take(part).consolidated()) for part in parts))


def changed_ids(rows: int) -> tuple[Ints, Ints]:
    """Return the ids of changed payments, shuffled, and their weights."""
    rng = np.random.default_rng(rows)
    added = max(1, int(rows * _KEPT))
    new = STATE + rng.permutation(STATE)[:added]
    old = rng.permutation(STATE)[: rows - added]
    weights = np.repeat(np.array([1, -1]), [len(new), len(old)])
    order = rng.permutation(rows)
    return np.concatenate([new, old])[order], weights[order]


ALL = np.arange(STATE)
ONES = np.ones(STATE, np.int64)


def payments_by(layout: Layout, of_hash: str | None) -> tuple[Spine, Callable[[int], pa.Table]]:
    """Return payments arranged by the hash of a column, and what makes changes of them."""

    def hashed(columns: dict[str, Any], rows: int) -> Ints:
        return np.zeros(rows, np.int64) if of_hash is None else hashes_of(columns[of_hash])

    def change(rows: int) -> pa.Table:
        ids, weights = changed_ids(rows)
        columns = payments(ids)
        return table(layout, {HASH: hashed(columns, rows), WEIGHT: weights, **columns})

    columns = payments(ALL)
    spine = arranged(layout, {WEIGHT: ONES, **columns}, hashed(columns, STATE))
    return spine, change


def integrates() -> Iterator[Case]:
    """Return the operators that keep rows: of streams, tables, recursions."""
    layout = Layout(("id",), PAYMENT, COUNT)
    spine, change = payments_by(layout, "id")
    yield Case("Integrate", Integrate(layout).step, (spine,), lambda rows: (change(rows),))

    def upserts(rows: int) -> tuple[pa.Table, ...]:
        given = change(rows)
        offset = pa.field(OFFSET, pa.int64())
        return (given.append_column(offset, pa.array(np.arange(rows))),)

    yield Case("Upsert", Upsert(layout).step, (spine,), upserts)

    def keyed(inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Any:
        return violation(before[0], ZSet.of(layout, inputs[0]))

    def consolidated(rows: int) -> tuple[pa.Table, ...]:
        return (ZSet.of(layout, change(rows)).consolidated().table,)

    yield Case("UniqueKey", keyed, (spine,), consolidated)
    leveled = Layout(("id",), pa.schema([*PAYMENT, pa.field("level", pa.int64())]), COUNT)
    level = pa.field("level", pa.int64())

    def levels(rows: int) -> tuple[pa.Table, ...]:
        given = change(rows)
        return (given.add_column(len(PAYMENT) + 1, level, pa.array(np.arange(rows) % 3)),)

    empty = Spine(leveled)
    yield Case("Recursion", Recursion(leveled, 2).step, (empty, empty), levels)


def aggregates() -> Iterator[Case]:
    """Return aggregates of payments by account."""
    account = pa.schema([pa.field("account", pa.int64())])
    sums = (
        pa.field("seen", pa.int64(), nullable=False),
        pa.field("total", pa.decimal128(22, 2), nullable=False),
    )
    totals = Layout(("account",), account, pa.schema([_WEIGHT, *sums]))
    groups = {"account": ALL}
    counted = {
        WEIGHT: ONES,
        "seen": ONES,
        "total": payments(ALL)["amount"].cast(pa.decimal128(22, 2)),
    }
    kept = arranged(totals, {**groups, **counted}, hashes_of(ALL))

    def increments(rows: int, layout: Layout, **more: Any) -> tuple[pa.Table, ...]:
        ids, weights = changed_ids(rows)
        groups = ids % STATE
        signed = payments(ids % STATE)["amount"].cast(pa.decimal128(22, 2))
        words = np.frombuffer(signed.buffers()[1], np.int64).reshape(-1, 2) * weights[:, None]
        words[:, 1] = words[:, 0] >> 63
        given = {
            HASH: hashes_of(groups),
            "account": groups,
            WEIGHT: weights,
            "seen": weights,
            "total": pa.Array.from_buffers(
                signed.type, rows, [None, pa.py_buffer(np.ascontiguousarray(words))]
            ),
            "at": ids % STATE,
            **dict.fromkeys(more, weights),
        }
        return (table(layout, given),)

    def aggregate(name: str, operator: Any, *spines: Spine) -> Case:
        weights = {part.weight: None for part in operator.parts}
        return Case(
            name,
            operator.step,
            spines,
            lambda rows: increments(rows, operator.increments, **weights),
        )

    yield aggregate("Aggregate count, sum, avg", GroupAggregate(totals), kept)
    many = arranged(totals, {**groups, **counted}, hashes_of(ALL), _MANY_RUNS)
    yield aggregate("Aggregate, 16 runs", GroupAggregate(totals), many)
    only = Layout(("account",), account, COUNT)
    rows = arranged(only, {"account": ALL, WEIGHT: ONES}, hashes_of(ALL))
    yield aggregate("SELECT DISTINCT", GroupAggregate(only), rows)
    at = pa.field("at", pa.int64())
    least = Extremum(at, "__least", "first", End.MIN)
    by_value = {"account": ALL, "at": ALL, WEIGHT: ONES}
    values = arranged(least.layout(only), by_value, hashes_of(ALL))
    yield aggregate("Aggregate min", GroupAggregate(only, (least,)), rows, values)
    grown = Layout(("account",), account, pa.schema([_WEIGHT, sums[0]]))
    more = {"account": ALL, WEIGHT: ONES, "seen": ONES}
    distinct = Distinct(pa.schema([at]), "__distinct", ("seen",))
    yield aggregate(
        "Aggregate count distinct",
        GroupAggregate(grown, (distinct,)),
        arranged(grown, more, hashes_of(ALL)),
        arranged(distinct.layout(grown), by_value, hashes_of(ALL)),
    )
    whole = GlobalAggregate(Layout((), pa.schema([]), pa.schema([_WEIGHT, *sums])))
    one = {name: column[:1] for name, column in counted.items()} | {INIT: ONES[:1]}
    kept_whole = Spine(whole.layouts[0]).plus(
        ZSet.of(whole.layouts[0], table(whole.layouts[0], {HASH: ALL[:1], **one}))
    )

    def into_one(rows: int) -> tuple[pa.Table, ...]:
        (given,) = increments(rows, totals)
        zeros = pa.array(np.zeros(rows, np.int64))
        return (given.set_column(0, given.schema.field(0), zeros).drop_columns(["account"]),)

    yield Case("Global aggregate", whole.step, (kept_whole,), into_one)


def joins() -> Iterator[Case]:
    """Return joins of payments with accounts, both of which change."""
    left = Layout(("account",), PAYMENT, COUNT)
    account = pa.schema([pa.field("number", pa.int64()), pa.field("owner", pa.string())])
    right = Layout(("number",), account, COUNT)
    output = tuple((name, name) for name in PAYMENT.names)
    pairs = Pairs(left, right, output, (("owner", "owner"),), (False,))
    spine, change = payments_by(left, "account")

    def owners(numbers: Ints, weights: Ints) -> dict[str, Any]:
        names = np.array([f"owner {i}" for i in range(1000)])
        return {
            "number": numbers,
            "owner": pa.array(names[numbers % 1000], pa.string()),
            WEIGHT: weights,
        }

    others = arranged(right, owners(ALL, ONES), hashes_of(ALL))

    def both(rows: int) -> tuple[pa.Table, ...]:
        numbers, weights = changed_ids(max(1, rows // 2))
        accounts = {HASH: hashes_of(numbers), **owners(numbers, weights)}
        return change(max(1, rows // 2)), table(right, accounts)

    yield Case("Join", InnerJoin(pairs).step, (spine, others), both)
    yield Case(
        "Join, one side",
        InnerJoin(pairs).step,
        (spine, others),
        lambda rows: (change(rows), right.schema.empty_table()),
    )
    many = arranged(right, owners(ALL, ONES), hashes_of(ALL), _MANY_RUNS)
    yield Case(
        "Join, one side, 16 runs",
        InnerJoin(pairs).step,
        (spine, many),
        lambda rows: (change(rows), right.schema.empty_table()),
    )
    counts = counts_layout(right)
    numbers = arranged(counts, {"number": ALL, WEIGHT: ONES}, hashes_of(ALL))
    outer = OuterJoin(pairs, keeps_left=True, keeps_right=False)
    yield Case("Outer join", outer.step, (spine, others, numbers), both)
    semi = SemiJoin(Pairs(left, right, output, (), (False,)), Emits.MATCHED)

    def keys(rows: int) -> tuple[pa.Table, ...]:
        first, second = both(rows)
        return first, second.select(counts.schema.names)

    yield Case("Semi join", semi.step, (spine, numbers), keys)
    sums = pa.schema([_WEIGHT, pa.field(MATCHES, pa.int64(), nullable=False)])
    sides = Layout(tuple(PAYMENT.names), PAYMENT, sums)
    row = pa.field(ROW, pa.int64())
    schema = pa.schema([*left.schema, row])
    matches = Matches(sides, schema, RowKind.LEFT, Emits.UNMATCHED, passes=True)
    stored = arranged(sides, {WEIGHT: ONES, MATCHES: ONES, **payments(ALL)}, hashes_of(ALL))

    def kinds(rows: int) -> tuple[pa.Table, ...]:
        ids, weights = changed_ids(rows)
        own = {HASH: hashes_of(ids), WEIGHT: weights, **payments(ids)}
        alone = table(left, {**own, ROW: np.full(rows, RowKind.LEFT)}, row)
        pair = table(left, {**own, ROW: np.full(rows, RowKind.PAIR)}, row)
        return (pa.concat_tables([alone, pair]).combine_chunks(),)

    yield Case("Matches", matches.step, (stored,), kinds)


def orders() -> Iterator[Case]:
    """Return the operators whose arrangements have an order, and those of whole groups."""
    layout = Layout(("account",), PAYMENT, COUNT, (OrderBy("at"), OrderBy("id")))
    spine, change = payments_by(layout, "account")
    yield Case("First rows", FirstRows(layout, 3).step, (spine,), lambda rows: (change(rows),))
    for name, reach in (
        ("Rows near, one before", FrameReach(before=1)),
        ("Rows near, numbered", FrameReach(running=True, peers=2)),
    ):
        near = NearRows(layout, reach)
        yield Case(name, near.step, (spine,), lambda rows: (change(rows),))
    grouped = Layout(("account",), PAYMENT, COUNT)
    unordered, _ = payments_by(grouped, "account")
    touched = TouchedGroups(grouped)
    yield Case("Touched groups", touched.step, (unordered,), lambda rows: (change(rows),))
    temporal = Temporal(PAYMENT, None, "leaves")
    moves = temporal.layout
    few = np.arange(STATE) % 16
    due = {DUE: payments(ALL)["at"] + 2_000_000, SIGN: -ONES, WEIGHT: ONES}
    waiting = arranged(moves, {**payments(ALL), **due}, hashes_of(few))

    def leaving(rows: int) -> tuple[pa.Table, ...]:
        ids, weights = changed_ids(rows)
        columns = payments(ids)
        given = {HASH: hashes_of(ids % 16), WEIGHT: weights, **columns}
        given["leaves"] = columns["at"] + 2_000_000
        names = temporal.columns
        clock = pa.table({"before": [1_000_000], "after": [1_000_010]}, schema=CLOCK)
        return pa.table({name: given[name] for name in names}), clock

    yield Case("Temporal", temporal.step, (waiting,), leaving)
    compared = Compared(PAYMENT, pa.int64(), below=True)
    bounds, values = compared.layouts
    bounded = {**payments(ALL), BOUND: payments(ALL)["at"], WEIGHT: ONES}
    one = {HASH: hashes_of(np.arange(16)), VALUE: np.full(16, 500), WEIGHT: np.ones(16, int)}
    kept = Spine(values).plus(ZSet.of(values, table(values, one)).consolidated())

    def beside(rows: int) -> tuple[pa.Table, ...]:
        ids, weights = changed_ids(rows)
        columns = payments(ids)
        given = {HASH: hashes_of(ids % 16), BOUND: columns["at"], WEIGHT: weights, **columns}
        first, _ = compared.inputs
        return pa.table({name: given[name] for name in first}), values.schema.empty_table()

    stored = arranged(bounds, bounded, hashes_of(few))
    yield Case("Compared", compared.step, (stored, kept), beside)


class Counting:
    """A fold that counts events, so that its own work is small."""

    def events(self, columns: pa.Table) -> Iterator[int]:
        """Yield a number for each event."""
        yield from range(columns.num_rows)

    def states(
        self, start: bytes | None, events: Iterator[int], stops: Sequence[int]
    ) -> tuple[bytes, ...]:
        """Return the count after each stop."""
        begun = 0 if start is None else int(start)
        for _ in range(stops[-1]):
            next(events)
        return tuple(b"%d" % (begun + stop) for stop in stops)

    def rows(self, states: Sequence[bytes]) -> pa.StructArray:
        """Return the counts."""
        counts = pa.array([int(state) for state in states], pa.int64())
        return pa.StructArray.from_arrays([counts], names=["n"])


def others() -> Iterator[Case]:
    """Return folds and quarantines."""
    backwards = ("at", "id", "account", "city", "amount")
    order = tuple(OrderBy(name, descending=True, nulls_first=False) for name in backwards)
    layout = Layout(("account",), PAYMENT, COUNT, order)
    row = pa.struct([("n", pa.int64())])
    fold = Fold(layout, tuple(PAYMENT.names), row, Counting())
    late = 2_000_000
    firsts = payments(ALL * _GROUP)
    events = arranged(layout, {**firsts, WEIGHT: ONES}, hashes_of(firsts["account"]))
    points = {**firsts, "place": ONES, "state": pa.array([b"1"] * STATE), WEIGHT: ONES}
    kept = arranged(fold.layouts[1], points, hashes_of(firsts["account"]))

    def arriving(rows: int) -> tuple[pa.Table, ...]:
        ids = np.random.default_rng(rows).permutation(STATE)[:rows] * _GROUP + 1
        columns = {**payments(ids), "at": late + ids}
        given = {HASH: hashes_of(columns["account"]), WEIGHT: np.ones(rows, int), **columns}
        return (table(layout, given),)

    yield Case("Fold", fold.step, (events, kept), arriving)
    quarantine = Quarantine(PAYMENT)
    (inside,) = quarantine.layouts
    some = np.arange(STATE, 2 * STATE) * 10
    since = np.zeros(STATE, np.int64)
    reasons = {ERROR: pa.array(["divided by zero"] * STATE), SINCE: since}
    refused = arranged(inside, {**payments(some), **reasons, WEIGHT: ONES}, hashes_of(some))
    _, change = payments_by(quarantine.rows, "id")
    yield Case(
        "Quarantine",
        quarantine.step,
        (refused, Spine(inside)),
        lambda rows: (change(rows), REFUSED.empty_table()),
    )


def sessions() -> Iterator[Case]:
    """Return session windows of keys that are always active: a session of each has all its rows.

    They are computed again by key, then by session, and then kept as totals.
    """
    keys, second, gap = 45, 1_000_000, 300_000_000
    times = pa.struct([("start", pa.timestamp("us")), ("end", pa.timestamp("us"))])
    rows = pa.schema([("account", pa.int64()), ("session", times), ("id", pa.int64())])
    whole = Layout(("account",), rows, COUNT)
    total = pa.field("total", pa.int64(), nullable=False)
    totals = Layout(("account",), pa.schema(list(rows)[:2]), pa.schema([_WEIGHT, total]))

    def pings(layout: Layout, ids: Ints) -> tuple[pa.Table, ...]:
        at = ids * second // 15
        ends = [pa.array(each).cast(pa.timestamp("us")) for each in (at, at + gap)]
        given = {
            HASH: hashes_of(ids % keys),
            "account": ids % keys,
            "session": pa.StructArray.from_arrays(ends, fields=list(times)),
            "id": ids,
            WEIGHT: np.ones_like(ids),
            "total": ids,
        }
        return (table(layout, given),)

    def of(name: str, layout: Layout, operator: Any) -> Case:
        empty = tuple(Spine(each) for each in operator.layouts)
        filled = operator.step(pings(layout, ALL), empty).updates
        spines = tuple(Spine(each.layout, (Run.of(each),)) for each in filled)
        return Case(name, operator.step, spines, lambda n: pings(layout, STATE + np.arange(n)))

    yield of("Sessions, by key", whole, TouchedGroups(whole))
    yield of("Sessions, by session", whole, TouchedSessions(whole, "session"))
    yield of("Sessions, kept", totals, SessionAggregate(totals, "session"))
    grows = SessionAggregate(totals, "session", append_only=True)
    yield of("Sessions, kept, append-only", totals, grows)


PARTS = (integrates, aggregates, joins, orders, sessions, others)


def counted(case: Case, inputs: tuple[pa.Table, ...]) -> dict[str, int]:
    """Return how much work one step does."""
    seen: Counter[str] = Counter()

    def watch(frame: Any, event: str, called: Any) -> None:
        code = frame.f_code
        seen["calls"] += event in _CALLS
        if event == "c_call":
            seen["sorts"] += getattr(called, "__qualname__", "") in _SORTS
        elif event == "call":
            seen["sorts"] += code.co_name == "lexsort"
            seen["kernels"] += code.co_filename == pa.compute.__file__
            within = frame.f_back is not None and frame.f_back.f_code in _SUMS
            seen["consolidations"] += code in _SUMS and not within

    before = tuple(replace(spine, reads=Reads()) for spine in case.before)
    sys.setprofile(watch)
    try:
        done = case.step(inputs, before)
    finally:
        sys.setprofile(None)
    seen["rows_out"] = done.output.num_rows if isinstance(done, StepResult) else 0
    seen["rows_read"] = sum(spine.reads.rows for spine in before)
    return {name: seen[name] for name in COUNTERS}


def least_seconds(case: Case, inputs: tuple[pa.Table, ...]) -> float:
    """Return the least processor time of a step: other processes hardly change it."""
    begun, least, steps = time.perf_counter(), float("inf"), 0
    while steps < _LEAST or (steps < _MOST and time.perf_counter() - begun < _SECONDS):
        start = time.process_time()
        case.step(inputs, case.before)
        least = min(least, time.process_time() - start)
        steps += 1
    return least


def figures(only: str = "") -> list[dict[str, Any]]:
    """Return the figures of the ``headrace`` that this process imports."""
    found = []
    for cases in PARTS:
        for case in cases():
            if only not in case.name:
                continue
            for rows in CHANGES:
                inputs = case.change(rows)
                work = counted(case, inputs)
                micros = round(least_seconds(case, inputs) * 1e6, 1)
                found.append({"operator": case.name, "rows": rows, "micros": micros, **work})
    return found


def measure(beside: Path | None = None, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return the figures of this checkout, and with ``beside`` the times of another one.

    The checkouts take turns; a time is the least of all rounds.
    """
    checkouts = [HERE] if beside is None else [beside, HERE]
    made: dict[Path, list[list[dict[str, Any]]]] = {checkout: [] for checkout in checkouts}
    for _ in range(rounds):
        for checkout in checkouts:
            path = os.pathsep.join(map(str, (checkout / "src", HERE)))
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.operators"],
                cwd=HERE,
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                check=True,
            )
            made[checkout].append(json.loads(done.stdout))
    found = [_least(rows) for rows in zip(*made[HERE], strict=True)]
    if beside is not None:
        for row, others in zip(found, zip(*made[beside], strict=True), strict=True):
            row["beside"] = _least(others)
    return found


def _least(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**rows[0], "micros": min(row["micros"] for row in rows)}


@click.command()
@click.option("--operator", default="", help="Only operators whose name contains this.")
def main(operator: str) -> None:
    """Print the figures as JSON."""
    print(json.dumps(figures(operator)))


if __name__ == "__main__":
    main()
