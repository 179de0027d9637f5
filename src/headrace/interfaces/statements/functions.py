"""Registering Python functions, and DROP FUNCTION.

RESUME SOURCE: restarts a source that stopped with an error.

ACKNOWLEDGE REJECTS: rows that were rejected, and need no attention any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.runtime.feeds import FeedState
from headrace.execution.runtime.retirement import require_kept
from headrace.lifecycle.definitions.functions import above, check_folds, listed, users
from headrace.planning.catalog import Relation, Sink, Stream, Table, View, title

if TYPE_CHECKING:
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.feeds import Feed, Feeds
    from headrace.io.connectors import Captures
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.definitions.waiting import WaitingViews
    from headrace.lifecycle.history.changes import ChangeClassifier
    from headrace.lifecycle.inputs.feeding import Capturing, Feeding
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import PlainView
    from headrace.planning.catalyst.python import Registered
    from headrace.planning.functions import Function, FunctionRecord
    from headrace.planning.sql import AcknowledgeRejects, DropFunction, Name, ResumeSource
    from headrace.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class FunctionChanges:
    """Registers and drops functions; views that call them resume or are dropped."""

    functions: Functions
    waiting: WaitingViews
    definer: Definer
    loop: EpochLoop
    changes: ChangeClassifier

    def register(self, function: Function, *, replace: bool) -> FunctionRecord:
        """Register a function, and resume the views that waited for it.

        With ``replace``, views that call another function of this name are rebuilt.
        """
        functions = self.functions
        with self.loop.exclusive():
            prepared = functions.prepared(function)
            record = prepared.record
            calling = users(self.loop.catalog, record.name)
            if not replace or not functions.is_replaceable(record):
                functions.refuse_other(record, calling)
            self._check(prepared, calling)
            changed = record != functions.records.get(record.name, record)
            if changed and calling:
                why = f'Function "{record.name}" was replaced.'
                over = above(self.loop.catalog, calling)
                for view in over:
                    if isinstance(view, View):
                        require_kept(self.loop.published.current, view)
                rebuilt = self.changes.of_function(v for v in calling if isinstance(v, View))
                self.changes.record(rebuilt, {"function": record.name})
                self.waiting.wait({view.id: why for view in over}, changed=True)
            functions.accept(prepared)
        self.waiting.resume()
        return record

    def _check(self, prepared: Registered, calling: tuple[View | PlainView, ...]) -> None:
        """Raise if a fold gives different rows for the same events of the views that call it."""
        if prepared.function.folded is None or prepared.record == self._known(prepared):
            return
        loop, engine = self.loop, self.functions.engine
        stopped = loop.published.current.stopped
        for view in calling:
            if isinstance(view, View) and view.id not in stopped:
                circuit = engine.circuit(view)
                stored = loop.ledger.spines.of(list(circuit.arrangements()))
                files = {id_: [run.file for run in runs] for id_, runs in stored.items()}
                check_folds(circuit, files, loop.directory / "runs", prepared.folding)

    def _known(self, prepared: Registered) -> FunctionRecord | None:
        return self.functions.records.get(prepared.record.name)

    def drop(self, statement: DropFunction) -> str:
        """Drop a function; with CASCADE, drop the views that call it as well."""
        functions, name, span = self.functions, statement.name.dotted, statement.name.span
        key = name.lower()
        if key not in functions.records:
            if statement.if_exists:
                return f'function "{name}" does not exist'
            otherwise = "SHOW FUNCTIONS lists what exists."
            raise unknown("function", name, functions.records, otherwise, span)
        with self.loop.exclusive():
            calling = users(self.loop.catalog, key)
            gone = above(self.loop.catalog, calling)
            if calling and not statement.cascade:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'function "{key}" is used by {listed(calling)}',
                    hint=f"Use DROP FUNCTION {key} CASCADE to drop these views too.",
                    span=span,
                )
            if gone:
                self.definer.drop([view.id for view in gone])
            functions.forget(key)
        also = f" and {len(gone)} views that need it" if gone else ""
        return f"dropped function {key}{also}"


@dataclass(frozen=True, slots=True)
class Resuming:
    """Restarts sources where their last part ended."""

    reader: Reader
    feeds: Feeds
    feeding: Feeding
    capturing: Capturing
    captures: Captures

    def resume(self, statement: ResumeSource) -> str:
        """Restart a source; return a message.

        Raises:
            HeadraceError: ``invalid`` if the source does not exist or has not stopped.
        """
        name = statement.name
        if name.dotted in self.captures:
            self._require_stopped(self.feeds.by_source.get(name.dotted), name)
            self.capturing.begin(self.captures.find(name.dotted))
            return f"resumed source {name}"
        relation = self._fed(name)
        self._require_stopped(self.feeds.by_relation.get(relation.id), name)
        self.feeds.forget(relation.id)
        self.feeding.begin(relation, rejecting=statement.rejecting)
        return f"resumed the source of {relation.kind} {relation.name}"

    def _fed(self, name: Name) -> Stream | Table:
        relation: Relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Stream | Table) and relation.declaration.source:
            shared = relation.declaration.shared_source
            if shared is None:
                return relation
            raise HeadraceError(
                Code.INVALID,
                f'table "{name}" shares the source "{shared}"',
                hint=f"Use RESUME SOURCE {shared} if that has stopped, CREATE OR REPLACE TABLE if"
                " only the table has.",
                span=name.span,
            )
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{name}" has no source',
            hint="SHOW SOURCES lists those that have a connector.",
            span=name.span,
        )

    def _require_stopped(self, feed: Feed | None, name: Name) -> None:
        if feed is not None and feed.state in {FeedState.RUNNING, FeedState.STARTING}:
            raise HeadraceError(
                Code.INVALID,
                f'source "{name}" has not stopped',
                hint="SHOW SOURCES shows the state of each.",
                span=name.span,
            )


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """Acknowledges what a stream or table rejected, or the target of a sink refused."""

    reader: Reader
    ledger: Ledger

    def acknowledge(self, statement: AcknowledgeRejects) -> str:
        """Acknowledge rows, all or those of the given ids; they stay listed.

        Raises:
            HeadraceError: ``invalid`` for relations that reject nothing.
        """
        name = statement.name
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if not isinstance(relation, Stream | Table | Sink):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} rejects no rows",
                hint="Name a stream, a table or a sink.",
                span=name.span,
            )
        count = self.ledger.rejects.acknowledge(relation.id, statement.ids)
        left = self.ledger.rejects.counted(relation.id).unacknowledged
        rows = "row" if count == 1 else "rows"
        return f"acknowledged {count:,} {rows} of {relation.name}; {left:,} still ask for attention"
