"""Slices of views: checks those that statements name, and maps them to the views above.

Marks slices of views dirty, together with the dependent slices of the views above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.conditions import ALIAS
from headrace.execution.runtime.dirty import EVENT
from headrace.lifecycle.states.declarations import in_statement
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.circuit.sharing import carried_columns
from headrace.planning.sql.lexer import TokenKind, identifier_value, tokens
from headrace.storage.ledger import Dirty, RepairPath, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.states.evaluating import Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation, View
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.sql import Fragment, SliceOf
    from headrace.storage.ledger import Ledger
    from headrace.types import RelationId


_OF_QUERIES = frozenset({"SELECT", "VALUES", "TABLE"})
"""Every subquery contains one of these words, unless it begins with FROM."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Reads and checks the slices that statements name."""

    reader: Reader
    engine: Engine
    snapshots: Snapshots

    def read(self, view: View, given: SliceOf) -> Slice:
        """Return the slice of a view that a statement names.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the place, if the condition uses more
                than the view's columns, or the time is not a time.
        """
        if given.where is not None:
            self._check(view, given.where)
        where = "" if given.where is None else given.where.text
        return Slice(where, None if given.since is None else self._time(given.since))

    def _check(self, view: View, where: Fragment) -> None:
        _refuse_subquery(where)
        try:
            analysed = self.engine.slice_analysed(view, where.text)
        except HeadraceError as error:
            raise _unqualified(in_statement(error, where.span)) from error
        if analysed.clocked:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a slice whose condition reads the clock is not supported",
                hint="Give the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'.",
                span=where.span,
            )
        if analysed.calls:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a slice whose condition calls a Python function is not supported",
                hint="Write the condition over the view's columns by functions of SQL.",
                span=where.span,
            )

    def _time(self, since: Fragment) -> int:
        """Evaluate a time; return it in microseconds UTC."""
        _refuse_subquery(since)
        text = f"SELECT CAST(({since.text}) AS TIMESTAMP) AS since"

        def state(_shape: Shape) -> Published:
            return self.reader.published

        try:
            rows, _ = self.snapshots.rows(Span.whole(text), state, lambda _: text)
        except HeadraceError as error:
            raise in_statement(error, since.span) from error
        (found,) = rows.column(0).cast(pa.int64()).to_pylist()
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                "SINCE is NULL",
                hint="Give a time, such as TIMESTAMP '2026-01-31 12:00:00'.",
                span=since.span,
            )
        return int(found)


def carried(engine: Engine, slice_: Slice, below: Relation, above: View) -> Slice:
    """Return the slice of ``above`` in which a slice of a relation below it can change rows.

    The condition is kept if its columns pass through under their names; otherwise it is all rows.
    """
    if not slice_.where:
        return slice_
    with engine.planning:
        circuit = engine.circuit(above)
    columns = below.schema.names
    kept = {
        columns[column].lower()
        for column, places in carried_columns(circuit, below.id).items()
        if columns[column].lower() in {above.schema.names[i].lower() for i in places}
    }
    used = _names(slice_.where) & {name.lower() for name in columns}
    return slice_ if used <= kept else Slice("", slice_.since)


def _unqualified(error: HeadraceError) -> HeadraceError:
    """Return the error with column names that lack the internal alias of their view."""
    primary, detail, hint = (
        text and text.replace(f"{ALIAS}.", "") for text in (error.primary, error.detail, error.hint)
    )
    return HeadraceError(error.code, primary or "", detail, hint, error.span)


def _names(condition: str) -> frozenset[str]:
    """Return the possible column names in a condition, in lower case."""
    return frozenset(
        identifier_value(token).lower()
        for token in tokens(condition)
        if token.kind in {TokenKind.WORD, TokenKind.BACKQUOTED, TokenKind.DQUOTED}
    )


def _refuse_subquery(fragment: Fragment) -> None:
    for word in _query_words(fragment):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a subquery in a slice is not supported",
            f"{word} begins one.",
            "Write the condition over the view's columns alone.",
            fragment.span,
        )


def _query_words(fragment: Fragment) -> Iterator[str]:
    before = ""
    for token in tokens(fragment.text):
        if token.word in _OF_QUERIES or (token.word == "FROM" and before == "("):
            yield token.word
        before = token.text


THROUGH = "through"
"""The key in an origin for the name of the dirty view below that the entry derives from."""


@dataclass(frozen=True, slots=True)
class Marking:
    """Writes entries into the dirty ledger.

    A view above a dirty slice is corrected by the deltas of the slice's repair. Its entry says so,
    and is removed in the same commit.
    """

    ledger: Ledger
    loop: EpochLoop
    engine: Engine

    def entries(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Return the entries of one event: the given ones, and derived ones for the views above."""
        event = {**origin, EVENT: uuid4().hex}
        roots = {entry.view: replace(entry, origin=event) for entry in found}
        return tuple(with_above(self.engine, catalog, roots).values())

    def mark(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Record the entries of one event in one transaction; return them, the given ones first.

        The caller holds the lock of epochs.
        """
        marked = self.ledger.dirty.mark(*self.entries(catalog, found, origin))
        self.loop.published.publish()
        return marked


def with_above(
    engine: Engine, catalog: Catalog, roots: Mapping[RelationId, Dirty]
) -> dict[RelationId, Dirty]:
    """Return the entries of one event by relation: the given ones and those of the views above."""
    dirty = dict(roots)
    for view in catalog.views_in_order():
        below = [dirty[id_] for id_ in view.depends_on if id_ in dirty]
        if view.id in dirty or not below or view.name.startswith(HIDDEN):
            continue
        slices = {carried(engine, e.slice, catalog.by_id[e.view], view) for e in below}
        through = {THROUGH: catalog.by_id[below[0].view].name}
        dirty[view.id] = replace(
            below[0],
            view=view.id,
            slice=slices.pop() if len(below) == 1 else Slice(),
            origin={**below[0].origin, **through},
            repair=RepairPath.DELTAS,
            cost=None,
            whole=None,
        )
    return dirty
