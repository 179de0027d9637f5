"""EXPLAIN: Spark's plan, the circuit, its state, and its inputs.

What a view would take over of others when it is filled, for EXPLAIN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, Span
from headrace.execution.runtime.fill_parts import kept_views, sizes_in
from headrace.execution.runtime.step import snapshot
from headrace.interfaces.statements.defining.stream_options import REUSE, is_on
from headrace.interfaces.statements.defining.view_builds import check_names
from headrace.interfaces.statements.defining.view_options import declared_columns, key_text
from headrace.interfaces.statements.results import Result
from headrace.lifecycle.states.system_relations import is_system, per_change
from headrace.planning.catalog import FUNCTION_VIEW, PlainView, Relation, Stream, Table, View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.circuit import GivenKey, InferredKey
from headrace.planning.circuit.digest import digest
from headrace.planning.circuit.explain import counted, explain, growing, state, summary
from headrace.planning.dialects import index_base
from headrace.planning.sql import (
    CreateMaterializedView,
    Explain,
    Explainable,
    ExplainKind,
    Name,
    Query,
)
from headrace.types import BuildId, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.lifecycle.states.evaluating import OwnEvaluator
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.circuit import Circuit
    from headrace.storage.ledger import Frontier, Ledger
    from headrace.types import ArrangementId


@dataclass(frozen=True, slots=True)
class ReusedState:
    """Finds state that the fill of a view would read in place of its inputs."""

    reader: Reader
    engine: Engine
    loop: EpochLoop

    def of(self, circuit: Circuit, build: View | None = None) -> str | None:
        """Return a sentence on it; None if the inputs would be read.

        The ``build`` is the one that would be filled, if it is known.
        """
        state, reads = self.reader.published, circuit.reads
        inputs = [state.catalog.by_id[id_] for id_ in sorted(reads)]
        shares = snapshot(self.reader.ledger, state, inputs, state.positions)
        if sum(share.rows for share in shares.values()) < self.loop.settings.reuse_rows:
            return None
        kept, sizes = kept_views(state, reads, build), sizes_in(state, shares)
        found = self.engine.restoring(circuit, kept, sizes)
        if found is None:
            return None
        taken, catalog = found.takeover, state.catalog
        rows, of = f"{taken.rows(state):,}", f"{sum(shares[id_].rows for id_ in taken.unread):,}"
        views = ", ".join(shown_name(catalog.by_id[id_], catalog) for id_ in taken.views)
        return f"Filled from {rows} rows of state of {views} in place of {of} rows of inputs."


@dataclass(frozen=True, slots=True)
class Explanations:
    """Explains queries and views."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    own_evaluator: OwnEvaluator
    loop: EpochLoop
    reused: ReusedState

    def explain(self, statement: Explain) -> Result:
        """Return the output of EXPLAIN as a table, line by line."""
        target, shown = statement.target, statement.shown
        lineage = shown is ExplainKind.LINEAGE
        lines = self._lineage(target) if lineage else self._explained(target, shown)
        return Result.of(("plan",), [(line,) for line in lines], self.ledger.head.epoch)

    def _lineage(self, target: Explainable) -> list[str]:
        """Return the inputs of a view or query, down to the logs and the positions read in them."""
        catalog = self.reader.catalog
        if isinstance(target, Name):
            relation = catalog.resolve(target.dotted, target.span)
            return self._read_by(relation, "")
        query = target if isinstance(target, Query) else target.query
        with self.engine.planning:
            analysed = self.engine.planner.analyse(query.span)
        reads = [id_ for id_ in (*analysed.names, *analysed.through) if not is_system(id_)]
        inputs = [self._read_by(catalog.by_id[id_], "  ") for id_ in reads]
        return ["the query", *(line for lines in inputs for line in lines)]

    def _read_by(
        self, relation: Relation, indent: str, stands: Frontier | None = None
    ) -> list[str]:
        """Return lines on a relation and its inputs, as a lagging reader ``stands``, if any."""
        ledger, state = self.ledger, self.reader.published
        stands = state.lagging.get(relation.id, stands)
        if isinstance(relation, Stream | Table):
            offsets = state.positions if stands is None else stands.offsets
            done, end = offsets.get(relation.id, 0), ledger.head.log_end(relation.id)
            read = f"changes [0, {done:,}) of {end:,} are read"
            return [f"{indent}{relation.kind} {relation.name}: {read}"]
        if relation.name.startswith(FUNCTION_VIEW):
            return [f"{indent}function {relation.name.removeprefix(FUNCTION_VIEW)}"]
        epoch = state.epoch if stands is None else stands.epoch
        at = "" if isinstance(relation, PlainView) else f": epoch {epoch}"
        below = [
            self._read_by(self.reader.catalog.by_id[id_], f"{indent}  ", stands)
            for id_ in relation.inputs
        ]
        return [
            f"{indent}{relation.kind} {relation.name}{at}",
            *(x for lines in below for x in lines),
        ]

    def _explained(self, target: Explainable, shown: ExplainKind) -> list[str]:
        engine, catalog = self.engine, self.reader.catalog
        if isinstance(target, Name):
            relation = catalog.resolve(target.dotted, target.span)
            if not isinstance(relation, View | PlainView):
                return [f"{relation.kind} {relation.name}: rows as stored in the log"]
            span = Span.whole(relation.query)
            existing = relation if isinstance(relation, View) else None
        else:
            query = target if isinstance(target, Query) else target.query
            span, existing = query.span, None
        refusal: HeadraceError | None = None
        with engine.planning:
            try:
                analysed = engine.planner.analyse(span)
            except HeadraceError as error:
                if not isinstance(target, Query):
                    raise
                # A query with clock or random functions can run, but not as a view.
                analysed, refusal = engine.planner.analyse(span, once=True), error
            plan = ["", "-- Spark's optimised plan", *analysed.text.rstrip().split("\n")]
            if isinstance(target, Query):
                plan += ["", "-- Read now by", self.own_evaluator.way(analysed, target.text)]
            if any(is_system(id_) for id_ in analysed.names):
                return ["-- read when queried; views cannot read it", *plan]
            try:
                if refusal is not None:
                    raise refusal
                circuit = self._circuit(existing, analysed, span, target)
            except HeadraceError as error:
                if not isinstance(target, Query):
                    raise
                return ["-- cannot be maintained as a view", *str(error).split("\n"), *plan]
        stored = {} if existing is None else sizes(self.ledger, circuit)
        base = index_base(span, engine.planner.relations)
        lines = [f"-- Array indexes: {base}"] if base else []
        lines += ["-- Circuit"]
        if shown is ExplainKind.CIRCUIT:
            return [*lines, *explain(circuit, lambda id_: catalog.by_id[id_].name, stored)]
        notes = self._notes(existing)
        lines += explain(circuit, lambda id_: catalog.by_id[id_].name, stored, notes)
        keyed = [] if existing is None else [f"Key: {key_text(existing)}."]
        taken = [] if existing is not None else self._taken_over(circuit, target)
        costs = [f"{each[0].upper()}{each[1:]}." for each in growing(circuit)]
        lines += ["", state(circuit, stored), summary(circuit), *costs, *taken, *keyed]
        return [*lines, *plan] if shown is ExplainKind.EVERYTHING else lines

    def _taken_over(self, circuit: Circuit, target: Explainable) -> list[str]:
        """Return a line on the state that a fill would take over, if any."""
        if isinstance(target, Query | Name):
            found = self.reused.of(circuit)
        elif is_on(target.options, REUSE):
            former = self.reader.catalog.find(target.name.dotted)
            build = former if isinstance(former, View) else None
            found = self.reused.of(circuit, build and replace(build, circuit=digest(circuit)))
        else:
            found = None
        return [] if found is None else [found]

    def _notes(self, view: View | None) -> Callable[[str], list[str]]:
        """Return a function of an operator's name: how it runs, and what it did so far.

        That is known of operators of views that exist.
        """
        if view is None:
            return lambda _operator: []
        found = {} if view.id in self.reader.published.lagging else self.engine.ways(view)

        def notes(operator: str) -> list[str]:
            way = found.get(operator)
            runs = [] if way is None else [f"in a narrow epoch: {way.words()}"]
            return [*runs, *self._worked(operator)]

        return notes

    def _worked(self, operator: str) -> list[str]:
        """Return a line on what an operator did since the database was opened, if it has run."""
        work = self.loop.work.of(operator)
        if work is None or not work.changes:
            return []
        rows_in, rows_out, rows_read = (
            per_change(rows, work.changes) for rows in (work.rows_in, work.rows_out, work.rows_read)
        )
        changes, epochs = counted(work.changes, "change"), counted(work.epochs, "epoch")
        rows = f"rows in {rows_in}, rows out {rows_out}, stored rows read {rows_read}"
        each = f"{1000 * work.seconds / work.epochs:,.1f} ms an epoch"
        return [f"so far, per change: {rows}; {changes} in {epochs}, {each}"]

    def _circuit(
        self, existing: View | None, analysed: Any, span: Any, target: Explainable
    ) -> Circuit:
        engine = self.engine
        if existing is not None:
            return engine.circuit(existing)
        own = analysed.schema.names
        names = (isinstance(target, CreateMaterializedView) and target.columns) or own
        check_names(names, len(own), span)
        stated = None if isinstance(target, Query | Name) else target.key
        key: InferredKey | GivenKey = InferredKey()
        if stated is not None:
            key = GivenKey(declared_columns(stated, analysed.schema.renamed(tuple(names))))
        return engine.circuits.circuit_of(RelationId(0), BuildId(0), analysed, span, names, key=key)


def sizes(ledger: Ledger, circuit: Circuit) -> dict[ArrangementId, tuple[int, int]]:
    """Return the stored rows and bytes of each arrangement of a circuit."""
    ids = {id_ for node in circuit.stateful() for id_ in node.arrangements}
    ids |= circuit.arrangements().keys()
    spines = ledger.spines.of(ids)
    return {
        id_: (
            sum(r.file.rows for r in spines.get(id_, ())),
            sum(r.file.bytes for r in spines.get(id_, ())),
        )
        for id_ in ids
    }
