"""Comparing stored rows with canonical history, by plain Spark batch.

Maintained state is not used: tables are rebuilt from their logs by Spark SQL, and views run as
their query text over these tables, in a separate session.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headrace.execution.engine.declared import SessionNames
from headrace.execution.engine.verifying.comparisons import (
    APART,
    EVERY_ROW,
    FROM_LOGS,
    Comparison,
    Count,
    InQuarantine,
    Sample,
    StoredInputs,
    as_stored,
    canonical_sql,
    computed_name,
    counted,
    raw_name,
    stored_name,
    without,
)
from headrace.planning.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.planning.catalyst.asof import has_asof
from headrace.planning.catalyst.clock import with_clock_at
from headrace.planning.catalyst.numbered import KeptRows, with_kept_rows
from headrace.planning.catalyst.scala import collect_arrow
from headrace.planning.catalyst.ties import REORDERING, with_one_order
from headrace.planning.dialects import log_of
from headrace.planning.sql import quote
from headrace.types import of_task, require_rows_kept

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.execution.engine.leaves import Leaves
    from headrace.execution.runtime.step import Share
    from headrace.planning.catalyst.python import Registered
    from headrace.types import RelationId


# The second rule computes on rows of VALUES while a query is planned, which may take long.
_EXCLUDED: Final = (REORDERING, "ConvertToLocalRelation")

NOTHING_KEPT: Final[Mapping[str, KeptRows]] = MappingProxyType({})


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Optimiser barrier: expressions above do not run on rows that were filtered out below."""
    yield from batches


@dataclass(slots=True)
class CanonicalHistory:
    """Computes tables and views from the logs alone. Thread-safe."""

    leaves: Leaves
    planning: threading.RLock
    """Held while the meaning of names changes, and while a query is prepared."""
    _names: SessionNames = field(init=False)

    def __post_init__(self) -> None:
        """Create the names of a session of its own, in which they mean canonical history."""
        # The limit of rows of a recursion is a safety limit of Spark's, not part of its semantics.
        unlimited = ("spark.sql.cteRecursionRowLimit", "-1")
        self._names = SessionNames(self.leaves.source, _EXCLUDED, (unlimited,))

    # -- names -----------------------------------------------------------------------------

    def declare(self, relation: Relation, *, planned: bool = True) -> None:
        """Declare a relation under its name, before the next comparison.

        The query of a view that is not ``planned`` cannot run now, so its stored rows are declared.
        """
        names = self._names
        names.relations[relation.name] = relation
        if isinstance(relation, Sink):
            return
        if not isinstance(relation, PlainView):
            also = [stored_name(relation), raw_name(relation), computed_name(relation)]
            query = relation.query if isinstance(relation, View) and planned else ""
            names.declare(relation, lambda: self._register(relation, planned=planned), also, query)
        elif planned:
            query = relation.query
            names.declare(relation, lambda: names.declare_text(relation), query=query)
        else:
            names.discard(relation)

    def _register(self, relation: Stream | Table | View, *, planned: bool) -> None:
        session = self._names.session
        contents = self.leaves.contents(session, relation, as_stored(relation.id))
        contents.createOrReplaceTempView(quote(stored_name(relation)))
        if planned:
            self._declare_computed(relation)
        if isinstance(relation, Stream):
            self._declare_log(relation)

    def _declare_log(self, stream: Stream) -> None:
        """Declare the events of a stream with their offsets, by all changes of its log."""
        session = self._names.session
        if stream.corrected:
            self.leaves.events(session, stream).createOrReplaceTempView(log_of(stream.id))
        else:
            self.leaves.declare_log(session, stream)

    def forget(self, relation: Relation) -> None:
        """Remove the declaration of a relation."""
        names = [relation.name, stored_name(relation), raw_name(relation), log_of(relation.id)]
        if isinstance(relation, View):
            names.append(computed_name(relation))
        self._names.forget(relation, names)

    def declare_function(self, function: Registered) -> None:
        """Declare a Python function, replacing one of its name."""
        self._names.declare_function(function)

    def forget_function(self, function: Registered) -> None:
        """Remove the declaration of a Python function."""
        self._names.forget_function(function)

    def _declare_computed(self, relation: Stream | Table | View) -> None:
        """Declare a relation as its contents by canonical history."""
        session = self._names.session
        if isinstance(relation, View) and relation.refresh.lags:
            # Readers are their queries over the rows that it has now, not over pending changes.
            contents = self.leaves.contents(session, relation, relation.id)
            contents.createOrReplaceTempView(quote(relation.name))
        if isinstance(relation, View):
            self._names.declare_text(relation, computed_name(relation))
            self._choose_among_ties(relation)
            return
        if isinstance(relation, Stream) and relation.corrected:
            events = self.leaves.events(session, relation)
            shown = events.select(*map(quote, relation.schema.names))
            shown.createOrReplaceTempView(quote(relation.name))
            return
        changes = self.leaves.changes(session, relation)
        changes.createOrReplaceTempView(quote(raw_name(relation)))
        text = canonical_sql(relation)
        session.sql(text).createOrReplaceTempView(quote(relation.name))

    def _choose_among_ties(self, view: View) -> None:
        """Make a view break ties by the columns that it reads, not by those that its readers use.

        Views over the clock are not included, since their plan changes with time.
        """
        transplant = self._names.transplant
        frame = self._names.session.table(quote(computed_name(view)))
        logical = transplant.logical(frame)
        if not has_asof(logical) or with_clock_at(transplant.scala, logical, 0) is not logical:
            return
        chosen = with_one_order(transplant, frame, logical)
        chosen.createOrReplaceTempView(quote(computed_name(view)))

    # -- comparisons -----------------------------------------------------------------------

    def counted(
        self,
        relations: Sequence[Table | View],
        shares: Mapping[RelationId, Share],
        now: int,
        samples: Mapping[RelationId, Sample] = MappingProxyType({}),
        stored: StoredInputs = FROM_LOGS,
        kept: Mapping[str, KeptRows] = NOTHING_KEPT,
    ) -> list[Count]:
        """Compare stored rows, or samples of them, with canonical history, in one job.

        For a view that is its query over canonical history, for a table the contents by its log.
        ``shares`` has the stored rows of each relation under :func:`as_stored` of its id, and the
        logs of all streams and tables that are read. ``now`` is the clock of the epoch of the
        stored rows. ``kept`` are rows of :meth:`keeping`, read from the same shares.
        """
        text = counted([_comparison(r, samples.get(r.id, EVERY_ROW)) for r in relations])
        with self.leaves.reading(shares):
            found = self._answer(text, now, stored, kept)
        counts = {row.pop("number"): Count(**row) for row in found.to_pylist()}
        return [counts.get(number, Count()) for number in range(len(relations))]

    def differences(
        self,
        relation: Table | View,
        shares: Mapping[RelationId, Share],
        most: int,
        now: int,
        sample: Sample = EVERY_ROW,
        stored: StoredInputs = FROM_LOGS,
        kept: Mapping[str, KeptRows] = NOTHING_KEPT,
        *,
        beyond_tolerance: bool,
    ) -> pa.Table:
        """Return up to ``most`` rows that differ, as :meth:`counted` counts them.

        ``__weight`` is the number of stored copies minus the number of correct copies.
        ``beyond_tolerance``: only rows whose floats differ by more than the tolerance, or that
        differ in other columns.
        """
        comparison = _comparison(relation, sample)
        text = (comparison.further_apart if beyond_tolerance else comparison.different)(most)
        with self.leaves.reading(shares):
            return self._answer(text, now, stored, kept)

    @contextmanager
    def _reading_stored(self, inputs: StoredInputs) -> Iterator[None]:
        """Declare views temporarily as reading ``inputs``, while a query is prepared in a block."""
        keeping = tuple(dict.fromkeys(each.view for each in inputs.quarantine))
        if inputs.views or keeping:
            self._names.flush()
        try:
            for view in inputs.views:
                contents = self.leaves.contents(self._names.session, view, view.id)
                contents.createOrReplaceTempView(quote(view.name))
            for view in keeping:
                self._declare_without([each for each in inputs.quarantine if each.view is view])
            for view in inputs.above:
                self._declare_computed(view)
            yield
        finally:
            for view in (*inputs.views, *keeping, *inputs.above):
                self._declare_computed(view)

    def _declare_without(self, kept: Sequence[InQuarantine]) -> None:
        """Declare a view as its query over its inputs without the rows in quarantine."""
        session, view = self._names.session, kept[0].view
        relations = [each.relation for each in kept]
        try:
            for each in kept:
                self._declare_rest(each)
            # Now, while names have this meaning: Spark resolves a view when it is created.
            frame = session.sql(self._names.plain(view.query)).toDF(*view.schema.names)
            frame.createOrReplaceTempView(quote(computed_name(view)))
        finally:
            for relation in relations:
                self._declare_computed(relation)
                if isinstance(relation, Stream):
                    self._declare_log(relation)
        self._choose_among_ties(view)

    def _declare_rest(self, kept: InQuarantine) -> None:
        """Declare a relation as its rows without those that a view has in quarantine."""
        session, relation, columns = self._names.session, kept.relation, kept.columns
        apart = self.leaves.weighted(session, columns, kept.share)
        apart.createOrReplaceTempView(APART)
        name = log_of(relation.id) if isinstance(relation, Stream) else quote(relation.name)
        every = session.table(name)
        rest = session.sql(without(name, APART, columns, every.columns))
        rest.mapInArrow(passed, of_task(every.schema)).createOrReplaceTempView(name)
        if isinstance(relation, Stream):
            shown = session.table(name).select(*map(quote, relation.schema.names))
            shown.createOrReplaceTempView(quote(relation.name))
        session.catalog.dropTempView(APART)

    @contextmanager
    def keeping(self, relations: Sequence[Stream | Table]) -> Iterator[Mapping[str, KeptRows]]:
        """Have Spark keep the contents of relations by canonical history, for a block's queries.

        Their logs are read by the first query that needs them, from its shares.
        """
        names, kept = self._names, dict[str, KeptRows]()
        try:
            with self.planning:
                for each in relations:
                    name = log_of(each.id) if isinstance(each, Stream) else each.name
                    names.require(quote(name))
                    frame = names.session.table(quote(name))
                    kept[name] = kept[each.name] = KeptRows.of(names.transplant.scala, frame)
            yield kept
        finally:
            for rows in kept.values():
                rows.release()

    def _answer(
        self, text: str, now: int, stored: StoredInputs, kept: Mapping[str, KeptRows]
    ) -> pa.Table:
        transplant = self._names.transplant
        with self.planning, self._reading_stored(stored):
            frame, logical = self._names.resolved(text)
            logical = with_kept_rows(transplant.scala, logical, kept) if kept else logical
            logical = with_clock_at(transplant.scala, logical, now)
            frame = with_one_order(transplant, frame, logical)
        require_rows_kept(frame.schema)
        return collect_arrow(frame)


def _comparison(relation: Table | View, sample: Sample) -> Comparison:
    return Comparison(stored_name(relation), computed_name(relation), relation.schema, sample)
