"""Groups that Spark recomputes: window functions, percentiles, collections.

Algebra: not linear. ``f`` is recomputed, but only for the groups in which a row has changed::

    Δ f(a) = f(a + Δa) - f(a), over the groups of Δa

This operator keeps the rows, and emits the rows of the touched groups before and after the epoch;
Spark evaluates ``f`` on both versions, and the output delta is the difference of the results.

State: the input, by the key of its group.
Cost per epoch: O(|Δ| log n), plus all rows of the touched groups, twice.
NULL: the NULLs of a key are one group.

Sessions that are computed again: functions of session windows whose values do not add up.

Algebra: not linear. ``f`` is recomputed, but only for the sessions that a change reaches::

    Δ f(a) = f(sessions of a + Δa) - f(sessions of a), over the sessions near Δa

As :class:`~headrace.algebra.operators.TouchedGroups`, it emits rows before and after the epoch;
``f`` is evaluated over both versions, by key and session.

State: the input by key and time, and the sessions by key, the latest first.
Cost per epoch: O(|Δ| log n), plus all rows of the sessions next to a change, twice; never those of
the other sessions of its key.
NULL: the NULLs of a key are one key. A row without a time is in no session: it is not in the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.protocol import (
    PRESENT,
    VERSION,
    StatefulOperator,
    StepResult,
    copies_of,
)
from headrace.algebra.operators.sessions import (
    END,
    START,
    Intervals,
    by_time,
    made,
    near,
    rows_layout,
    sessions_layout,
    structs,
    within,
)
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.zset import column
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Ints


@dataclass(frozen=True)
class TouchedGroups(StatefulOperator):
    """Emit the rows of the groups touched, before and after the epoch, each as often as its weight.

    ``layout``: the key is that of the group, the identity is the whole row. The output has
    ``__hash``, the columns of the layout, ``__version`` and ``__present``, and no weights. With
    ``always``, for a function without groups, each version also has a placeholder row, so that
    there is a result over no rows; only the version before the first step has none.
    """

    layout: Layout
    always: bool = False

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "the rows of a group have accumulators")
        if self.always and self.layout.key:
            raise HeadraceError(Code.INTERNAL, "a global aggregate has a key")

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return self.always

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The rows by group and, with ``always``, one row once the first step was taken."""
        return (self.layout, _PUBLISHED) if self.always else (self.layout,)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return pa.schema(
            [
                self.layout.schema.field(HASH),
                *self.layout.columns,
                pa.field(VERSION, pa.int64()),
                pa.field(PRESENT, pa.bool_()),
            ]
        )

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return both versions of the groups touched, and the consolidated input."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        heads, group = change.keyed()
        touched = change.take(heads)
        probes, old = before[0].lookup(touched.hashes, touched.keys)
        _, new = old.plus(change).summed(np.concatenate([probes, group]))
        versions = [self._version(old, 0), self._version(new, 1)]
        if not self.always:
            return StepResult(pa.concat_tables(versions), (change,))
        _, published = before[1].lookup(np.zeros(1, np.int64), [])
        first = published.rows == 0
        if change.rows == 0 and not first:
            return StepResult(self.schema.empty_table(), (change, ZSet.empty(_PUBLISHED)))
        versions += [] if first else [self._placeholder(0)]
        versions.append(self._placeholder(1))
        row = {HASH: [0], WEIGHT: [1]} if first else {HASH: [], WEIGHT: []}
        publish = ZSet(_PUBLISHED, pa.table(row, schema=_PUBLISHED.schema))
        return StepResult(pa.concat_tables(versions), (change, publish))

    def _version(self, rows: ZSet, version: int) -> pa.Table:
        """Return the rows, each as often as its weight, marked with the version."""
        rows = rows.take(copies_of(rows))
        schema = self.schema
        columns = rows.table.select(schema.names[:-2]).columns
        columns.append(pa.array(np.full(rows.rows, version, np.int64)))
        columns.append(pa.array(np.ones(rows.rows, np.bool_)))
        return pa.Table.from_arrays(columns, schema=schema)

    def _placeholder(self, version: int) -> pa.Table:
        given = {HASH: [0], VERSION: [version], PRESENT: [False]}
        row = {field.name: given.get(field.name, [None]) for field in self.schema}
        return pa.table(row, schema=self.schema)


_PUBLISHED = Layout((), pa.schema([]), pa.schema([pa.field(WEIGHT, pa.int64())]))


SESSION = "__session"
"""The output column with the session of a row, a struct of two times."""


@dataclass(frozen=True)
class TouchedSessions(StatefulOperator):
    """Emit the rows of the sessions touched, before and after the epoch, as often as their weight.

    ``layout``: the key is that of sessions, the identity is the whole row, with its interval as the
    struct ``session``. The output has ``__hash``, the columns of the layout, ``__session``,
    ``__version`` and ``__present``, which is true, and no weights.
    """

    layout: Layout
    session: str

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return False

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """The rows by key and time, and the sessions."""
        rows = rows_layout(self.layout, self.session)
        return rows, sessions_layout(self.layout, self.session, [])

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return pa.schema(
            [
                self.layout.schema.field(HASH),
                *self.layout.columns,
                pa.field(SESSION, self.layout.columns.field(self.session).type),
                pa.field(VERSION, pa.int64()),
                pa.field(PRESENT, pa.bool_()),
            ]
        )

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return both versions of the sessions touched, and the deltas of the state."""
        rows, sessions = before
        change = by_time(ZSet.of(self.layout, inputs[0]), rows.layout, self.session)
        if not change.rows:
            return StepResult(self.schema.empty_table(), tuple(map(ZSet.empty, self.layouts)))
        heads, group = change.keyed()
        keys, own = change.take(heads), Intervals.of(group, change)
        group, former = near(sessions, keys, own.united()[0])
        whole, of = own.plus(Intervals.of(group, former)).united()
        at, old = within(rows, keys, whole)
        now_at, new = old.plus(change).summed(np.concatenate([at, of[: change.rows]]))
        versions = [self._version(at, old, 0)[0]]
        table, found = self._version(now_at, new, 1)
        versions.append(table)
        united = Intervals(whole.groups[found.groups], found.starts, found.ends)
        ones = pa.array(np.ones(len(united.groups), np.int64))
        state = former.with_weights(-former.weights).plus(
            made(sessions.layout, keys, united, {WEIGHT: ones})
        )
        return StepResult(pa.concat_tables(versions), (change, state.consolidated()))

    def _version(self, stretches: Ints, rows: ZSet, version: int) -> tuple[pa.Table, Intervals]:
        """Return the rows of some stretches of time with their sessions, and the sessions."""
        sessions, of = Intervals.of(stretches, rows).united()
        copies = copies_of(rows)
        rows, of = rows.take(copies), of[copies]
        type_ = self.layout.columns.field(self.session).type
        times = self.layouts[1].schema.field(START).type, self.layouts[1].schema.field(END).type
        ends = [
            pa.array(values[of]).view(time)
            for values, time in zip((sessions.starts, sessions.ends), times, strict=True)
        ]
        own = structs(column(rows.table, START), column(rows.table, END), type_)
        given = {
            self.session: own,
            SESSION: structs(ends[0], ends[1], type_),
            VERSION: pa.array(np.full(rows.rows, version, np.int64)),
            PRESENT: pa.array(np.ones(rows.rows, np.bool_)),
        }
        columns = [given[n] if n in given else column(rows.table, n) for n in self.schema.names]
        return pa.Table.from_arrays(columns, schema=self.schema), sessions
