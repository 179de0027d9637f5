"""Evaluating queries by plain Spark batch: over snapshots, and over canonical history.

A *snapshot* query reads the stored contents of an epoch. A *canonical* query does not use
maintained state: tables are rebuilt from their logs by Spark SQL, and views are their query text
over these tables. ``VERIFY`` compares the two.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View, logged
from headrace.catalyst.asof import has_asof
from headrace.catalyst.clock import with_clock_at
from headrace.catalyst.collect import collect_arrow
from headrace.catalyst.corrections import corrected
from headrace.catalyst.one_order import with_one_order
from headrace.catalyst.qualified import with_one_word_names
from headrace.catalyst.scala import ASOF_JOINS, OPTIMIZER, scala_of
from headrace.catalyst.ties import REORDERING
from headrace.catalyst.transplant import Transplant
from headrace.catalyst.void_keys import with_keys_typed
from headrace.dialects import OFFSET, log_of, spark_text
from headrace.engine.jobs.cancelling import tagged
from headrace.engine.jobs.failures import step_failure
from headrace.engine.jobs.scope import jobs_of
from headrace.engine.jobs.worker import BATCH_ROWS, LeafTask, LogReader
from headrace.engine.reading.plans import Plans, Prepared
from headrace.engine.reading.pulls import Pull
from headrace.engine.reading.registrations import PendingRegistrations
from headrace.engine.reading.scans import LEAF, Refused, Scan, Scans, translated
from headrace.engine.verifying.canonical import (
    APART,
    as_stored,
    canonical_sql,
    computed_name,
    raw_name,
    stored_name,
    without,
)
from headrace.engine.verifying.comparisons import (
    EVERY_ROW,
    FROM_LOGS,
    Comparison,
    Count,
    InQuarantine,
    Sample,
    StoredInputs,
    counted,
)
from headrace.errors import Span
from headrace.log import CORRECTION
from headrace.runtime.step import Share, Step
from headrace.sql import quote
from headrace.types import Column, RelationId, Schema, of_task, require_kept
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.catalyst.python import Registered
    from headrace.functions import Folded
    from headrace.serving import Contents


@dataclass(frozen=True, slots=True)
class ContentsTask:
    """Yield a relation's rows, each as often as its weight says."""

    leaf: LeafTask
    names: tuple[str, ...]

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's plan, which says which relation it reads."""
        return f"{LEAF}{self.leaf.relation}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the partition's number as the only row of the input."""
        for batch in self.leaf(batches):
            weights = batch.column(len(self.names)).to_numpy()
            rows = pa.RecordBatch.from_arrays(
                [batch.column(i) for i in range(len(self.names))], names=list(self.names)
            )
            if (weights == 1).all():
                yield rows
                continue
            repeated = np.repeat(np.arange(len(weights)), weights.clip(0))
            for start in range(0, len(repeated), BATCH_ROWS):
                yield rows.take(pa.array(repeated[start : start + BATCH_ROWS]))


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on; Spark evaluates nothing below of what is above, on rows that are left out."""
    yield from batches


@dataclass(slots=True)
class Queries:
    """Runs queries over shares; ``directory`` is the data directory."""

    spark: SparkSession
    directory: Path
    partitions: int
    log: LogReader
    planning: threading.RLock
    """Held while names get another meaning, and while a query is prepared."""
    _snapshots: SparkSession = field(init=False)
    _canonical: SparkSession = field(init=False)
    _registrations: dict[SparkSession, PendingRegistrations] = field(init=False)
    _relations: dict[str, Relation] = field(default_factory=dict, init=False)
    _folds: dict[str, Folded] = field(default_factory=dict, init=False)
    plans: Plans = field(default_factory=Plans, init=False)
    _scans: Scans = field(default_factory=Scans, init=False)

    def __post_init__(self) -> None:
        """Open separate sessions, since one name has different meanings in them."""
        self._snapshots = self.spark.newSession()
        self._canonical = self.spark.newSession()
        self._registrations = {
            self._snapshots: PendingRegistrations(),
            self._canonical: PendingRegistrations(),
        }
        for session in self._registrations:
            session.conf.set(*ASOF_JOINS)
            # Rows of VALUES are not computed on while a query is planned: that may take long.
            rules = (REORDERING, "ConvertToLocalRelation")
            excluded = ",".join(f"{OPTIMIZER}.{rule}" for rule in rules)
            session.conf.set("spark.sql.optimizer.excludedRules", excluded)
        # The limit of rows of a recursion is a safety limit of Spark's, not part of its semantics.
        self._canonical.conf.set("spark.sql.cteRecursionRowLimit", -1)

    def declare(self, relation: Relation, *, canonical: bool = True) -> None:
        """Declare a relation, under its name, to both kinds of queries.

        Without ``canonical``, only a view's contents are declared: its query cannot run now. Spark
        gets the declaration before the next query of the kind.
        """
        self.plans.clear()
        self._relations[relation.name] = relation
        if isinstance(relation, Sink):
            return
        snapshots = self._registrations[self._snapshots]
        stored = self._registrations[self._canonical]
        if isinstance(relation, PlainView) and not canonical:
            snapshots.discard(relation)
            stored.discard(relation)
            return
        if isinstance(relation, PlainView):
            snapshots.add(relation, lambda: self._declare_text(self._snapshots, relation))
            stored.add(relation, lambda: self._declare_text(self._canonical, relation))
            return
        snapshots.add(relation, lambda: self._declare_contents(relation))
        stored.add(relation, lambda: self._declare_stored(relation, canonical=canonical))

    def _declare_contents(self, relation: Stream | Table | View) -> None:
        contents = self._contents(self._snapshots, relation, relation.id)
        contents.createOrReplaceTempView(quote(relation.name))
        if isinstance(relation, Stream):
            self._declare_log(self._snapshots, relation)

    def _declare_stored(self, relation: Stream | Table | View, *, canonical: bool) -> None:
        contents = self._contents(self._canonical, relation, as_stored(relation.id))
        contents.createOrReplaceTempView(quote(stored_name(relation)))
        if canonical:
            self._declare_canonical(relation)
        if isinstance(relation, Stream):
            self._declare_log(self._canonical, relation)

    def _contents(
        self, session: SparkSession, relation: Stream | Table | View, share: RelationId
    ) -> DataFrame:
        if isinstance(relation, Stream) and relation.corrected:
            return self._events(session, relation).select(*map(quote, relation.schema.names))
        names = relation.schema.names
        columns = relation.schema.arrow
        leaf = LeafTask(share, columns, False, self.partitions, self.log)  # noqa: FBT003
        return self._frame(session, ContentsTask(leaf, names), relation.schema.spark)

    def computed(self, rows: pa.Table, expressions: list[str], source: str = "__rows") -> pa.Table:
        """Return the values of expressions, each with its alias, for rows in their order.

        They read ``source``, a query over ``__rows`` that keeps its column ``__place``.

        Raises:
            HeadraceError: ``invalid`` if an expression fails on a row.
        """
        place, name = "__place", f"__rows_{uuid4().hex}"
        placed = rows.append_column(place, pa.array(np.arange(rows.num_rows)))
        try:
            self._snapshots.createDataFrame(placed).createOrReplaceTempView(name)
            read = f"SELECT {', '.join([place, *expressions])} FROM "
            text = self._plain(read + source.replace("__rows", name))
            with tagged(self.spark):
                found = collect_arrow(self._snapshots.sql(text))
            self._snapshots.catalog.dropTempView(name)
            return found.sort_by(place)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def provide(self, relation: Stream, rows: pa.Table) -> None:
        """Declare a relation without stored contents to queries, with these rows."""
        self._relations[relation.name] = relation
        frame = self._snapshots.createDataFrame(rows, relation.schema.spark)
        frame.createOrReplaceTempView(quote(relation.name))

    def forget(self, relation: Relation) -> None:
        """Remove the declaration of a relation."""
        self.plans.clear()
        self._relations.pop(relation.name, None)
        names = [relation.name, stored_name(relation), raw_name(relation), log_of(relation.id)]
        if isinstance(relation, View):
            names.append(computed_name(relation))
        for session, registrations in self._registrations.items():
            if registrations.remove(relation):
                for name in names:
                    session.catalog.dropTempView(name)

    def declare_function(self, function: Registered) -> None:
        """Declare a Python function to both kinds of queries, replacing one of its name."""
        self.plans.clear()
        if function.function.folded is not None:
            self._folds[function.function.key] = function.function.folded
        for session in self._registrations:
            function.declare(session)

    def forget_function(self, function: Registered) -> None:
        """Remove the declaration of a Python function."""
        self.plans.clear()
        self._folds.pop(function.function.key, None)
        for session in self._registrations:
            function.forget(session)

    def prepared(self, query: str) -> Prepared:
        """Return a query over snapshots, with the present meaning of names."""
        try:
            text, changes = self._plain(query), self.plans.changes
            frame = self._prepared(self._snapshots, text)
            return Prepared(query, frame, self._is_lasting(text), changes)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def answer(
        self,
        prepared: Prepared,
        relations: Sequence[Relation],
        contents: Callable[[RelationId], Contents],
        shares: Callable[[], Mapping[RelationId, Share]],
        indexes: Sequence[Contents] = (),
    ) -> pa.Table | None:
        """Return the result of a prepared query over some relations, by the cheapest way there is.

        ``contents`` returns the stored rows of a table or view, and ``indexes`` are those of the
        only one; ``shares`` returns what a job reads. None if the query was kept, and has to be
        prepared anew.
        """
        known = prepared.is_kept
        if known and prepared.relations != tuple(relations):
            return None
        if not known:
            self._find_way(prepared, relations)
        rows = self._pulled(prepared.pull, relations, contents, indexes)
        if rows is None and isinstance(prepared.scan, Scan):
            rows = self._scans.rows(prepared.scan, contents)
        if rows is None and not known:
            return self.rows(prepared.frame, shares())
        return rows

    def way(self, prepared: Prepared, relations: Sequence[Relation]) -> str:
        """Return how :meth:`answer` would answer, and why not by less."""
        if not prepared.is_kept:
            self._find_way(prepared, relations)
        if prepared.pull is not None:
            return "rows that its conditions choose, without a Spark job"
        if isinstance(prepared.scan, Scan):
            return "a scan by DuckDB, without a Spark job"
        return f"a Spark job, because of {prepared.scan}"

    def _find_way(self, prepared: Prepared, relations: Sequence[Relation]) -> None:
        """Find how a query can be answered without a job, and keep that if there is a way."""
        prepared.relations = tuple(relations)
        try:
            prepared.pull = self._pull(prepared.frame, relations)
            prepared.scan = self.scan(prepared.frame, relations)
        except Refused as refused:
            prepared.scan = refused
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error
        if prepared.is_lasting and (prepared.pull or isinstance(prepared.scan, Scan)):
            self.plans.keep(prepared)

    def _is_lasting(self, text: str) -> bool:
        """Whether a query means the same later: it names neither the time nor the session."""
        scala = scala_of(self.spark)
        analysed = self._transplant(self._snapshots).logical(self._snapshots.sql(text))
        return not scala.may_hold("CURRENT_LIKE", analysed)

    def scan(self, prepared: DataFrame, relations: Sequence[Relation]) -> Scan:
        """Return a prepared query over some relations as one for DuckDB.

        Raises:
            Refused: only Spark answers it; the text says why.
        """
        for relation in relations:
            if isinstance(relation, Stream):
                raise Refused(f"stream {relation.name}")
        stored = {r.id: r.schema.names for r in relations if isinstance(r, Table | View)}
        if not stored:
            raise Refused("what it reads, which is not stored")
        try:
            return translated(prepared, stored)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def _pull(self, prepared: DataFrame, relations: Sequence[Relation]) -> Pull | None:
        if len(relations) != 1 or not isinstance(relations[0], Table | View):
            return None
        return Pull.of(scala_of(self.spark), prepared, relations[0].schema.names)

    def _pulled(
        self,
        pull: Pull | None,
        relations: Sequence[Relation],
        contents: Callable[[RelationId], Contents],
        indexes: Sequence[Contents],
    ) -> pa.Table | None:
        """Return the rows that conditions choose; None if others are computed, or many."""
        try:
            return None if pull is None else pull.rows(contents(relations[0].id), indexes)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def rows(self, prepared: DataFrame, shares: Mapping[RelationId, Share]) -> pa.Table:
        """Return the result of a prepared query over the shares, with Spark's types."""
        with self._reading(shares):
            return collect_arrow(prepared)

    def counted(
        self,
        relations: Sequence[Table | View],
        shares: Mapping[RelationId, Share],
        now: int,
        samples: Mapping[RelationId, Sample] = MappingProxyType({}),
        stored: StoredInputs = FROM_LOGS,
    ) -> list[Count]:
        """Compare stored rows, or samples of them, with canonical history, in one job.

        That is a view's query over it, or what the log of a table makes. ``shares`` has the stored
        rows of each under :func:`as_stored` of its id, and the logs of all streams and tables that
        it reads. ``now`` is the clock of the epoch of the stored rows.
        """
        text = counted([_comparison(r, samples.get(r.id, EVERY_ROW)) for r in relations])
        with self._reading(shares):
            found = self._answer(self._canonical, text, now, stored)
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
        with self._reading(shares):
            return self._answer(self._canonical, text, now, stored)

    # -- canonical history -----------------------------------------------------------------

    def _declare_text(
        self, session: SparkSession, view: View | PlainView, name: str | None = None
    ) -> None:
        """Declare a view as its query, under its name or another."""
        columns = ", ".join(quote(name) for name in view.schema.names)
        session.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {quote(name or view.name)} ({columns}) "
            f"AS {self._plain(view.query)}"
        )

    def _declare_canonical(self, relation: Stream | Table | View) -> None:
        if isinstance(relation, View) and relation.refresh.lags:
            # What reads it is its query over the rows that it shows, not over what it has not read.
            contents = self._contents(self._canonical, relation, relation.id)
            contents.createOrReplaceTempView(quote(relation.name))
        if isinstance(relation, View):
            self._declare_text(self._canonical, relation, computed_name(relation))
            self._choose_among_ties(relation)
            return
        if isinstance(relation, Stream) and relation.corrected:
            events = self._events(self._canonical, relation)
            names = map(quote, relation.schema.names)
            events.select(*names).createOrReplaceTempView(quote(relation.name))
            return
        raw = self._raw_frame(self._canonical, relation)
        raw.createOrReplaceTempView(quote(raw_name(relation)))
        text = canonical_sql(relation)
        self._canonical.sql(text).createOrReplaceTempView(quote(relation.name))

    def _choose_among_ties(self, view: View) -> None:
        """Make a view break ties by the columns that it reads, not by those that are read of it.

        Views over the clock are not included, since their plan changes with time.
        """
        transplant = self._transplant(self._canonical)
        frame = self._canonical.table(quote(computed_name(view)))
        logical = transplant.logical(frame)
        if not has_asof(logical) or with_clock_at(transplant.scala, logical, 0) is not logical:
            return
        chosen = with_one_order(transplant, frame, logical)
        chosen.createOrReplaceTempView(quote(computed_name(view)))

    def _transplant(self, session: SparkSession) -> Transplant:
        return Transplant(session, scala_of(session))

    def _raw_frame(self, session: SparkSession, relation: Stream | Table) -> DataFrame:
        """Return the changes of a relation's log, as ``c0``, ..., with weights and places.

        The last column of a corrected stream is the number of the correction, or NULL.
        """
        schema = logged(relation)
        if isinstance(relation, Stream) and relation.corrected:
            schema = Schema((*schema.columns, Column(CORRECTION, LongType())))
        leaf = LeafTask(relation.id, schema.arrow, True, self.partitions, self.log)  # noqa: FBT003
        renamed = StructType(
            [
                *(StructField(f"c{i}", c.type) for i, c in enumerate(schema.columns)),
                StructField(WEIGHT, LongType()),
                StructField(OFFSET, LongType()),
            ]
        )
        return self._frame(session, leaf, renamed)

    def _declare_log(self, session: SparkSession, stream: Stream) -> None:
        """Declare a stream with the offset and time of each row, which only its log has."""
        if stream.corrected:
            self._events(session, stream).createOrReplaceTempView(log_of(stream.id))
            return
        names = stream.logged.names
        renamed = [f"c{i} AS {quote(name)}" for i, name in enumerate(names)]
        raw = self._raw_frame(session, stream)
        raw.selectExpr(*renamed, OFFSET).createOrReplaceTempView(log_of(stream.id))

    def _events(self, session: SparkSession, stream: Stream) -> DataFrame:
        """Return the events of a corrected stream as they are now, with their offsets."""
        names = stream.logged.names
        raw = f"__raw_{stream.id}"
        self._raw_frame(session, stream).createOrReplaceTempView(raw)
        renamed = ", ".join(f"c{i} AS {quote(name)}" for i, name in enumerate(names))
        newest = f"c{len(names)} DESC NULLS LAST, {WEIGHT} DESC"
        last = (
            f"SELECT *, row_number() OVER (PARTITION BY {OFFSET} ORDER BY {newest}) AS nth "
            f"FROM {raw}"
        )
        kept = f"nth = 1 AND {WEIGHT} > 0"
        return session.sql(f"SELECT {renamed}, {OFFSET} FROM ({last}) WHERE {kept}")

    # -- running ---------------------------------------------------------------------------

    def _plain(self, query: str) -> str:
        """Return the query in Spark SQL."""
        read = spark_text(Span(query, 0, len(query)), self._relations, self._folds)
        parser = scala_of(self.spark).parser(self._canonical._jsparkSession)  # noqa: SLF001
        return with_one_word_names(parser, read.span, self._relations).text

    def _frame(self, session: SparkSession, task: Any, schema: StructType) -> DataFrame:
        count = self.partitions
        return session.range(0, count, 1, count).mapInArrow(task, of_task(schema))

    @contextmanager
    def _reading_stored(self, inputs: StoredInputs) -> Iterator[None]:
        """Have views read what they are said to while canonical queries are prepared in a block."""
        keeping = tuple(dict.fromkeys(each.view for each in inputs.quarantine))
        if inputs.views or keeping:
            self._registrations[self._canonical].flush()
        try:
            for view in inputs.views:
                contents = self._contents(self._canonical, view, view.id)
                contents.createOrReplaceTempView(quote(view.name))
            for view in keeping:
                self._declare_without([each for each in inputs.quarantine if each.view is view])
            for view in inputs.above:
                self._declare_canonical(view)
            yield
        finally:
            for view in (*inputs.views, *keeping, *inputs.above):
                self._declare_canonical(view)

    def _declare_without(self, kept: Sequence[InQuarantine]) -> None:
        """Declare a view as its query over the rows that it has not in quarantine."""
        session, view = self._canonical, kept[0].view
        relations = [each.relation for each in kept]
        try:
            for each in kept:
                self._declare_rest(each)
            # Now, while names have this meaning: such a view of Spark has its plan, not its text.
            frame = session.sql(self._plain(view.query)).toDF(*view.schema.names)
            frame.createOrReplaceTempView(quote(computed_name(view)))
        finally:
            for relation in relations:
                self._declare_canonical(relation)
                if isinstance(relation, Stream):
                    self._declare_log(session, relation)
        self._choose_among_ties(view)

    def _declare_rest(self, kept: InQuarantine) -> None:
        """Declare a relation as its rows but those that a view has in quarantine."""
        session, relation, columns = self._canonical, kept.relation, kept.columns
        leaf = LeafTask(kept.share, columns.arrow, False, self.partitions, self.log)  # noqa: FBT003
        fields = [StructField(f"c{i}", c.type) for i, c in enumerate(columns.columns)]
        apart = self._frame(session, leaf, StructType([*fields, StructField(WEIGHT, LongType())]))
        apart.createOrReplaceTempView(APART)
        name = log_of(relation.id) if isinstance(relation, Stream) else quote(relation.name)
        every = session.table(name)
        rest = session.sql(without(name, APART, columns, every.columns))
        rest.mapInArrow(passed, of_task(every.schema)).createOrReplaceTempView(name)
        if isinstance(relation, Stream):
            shown = session.table(name).select(*map(quote, relation.schema.names))
            shown.createOrReplaceTempView(quote(relation.name))
        session.catalog.dropTempView(APART)

    def _answer(
        self, session: SparkSession, query: str, now: int, stored: StoredInputs
    ) -> pa.Table:
        with self.planning, self._reading_stored(stored):
            prepared = self._prepared(session, query, now)
        return collect_arrow(prepared)

    def _prepared(self, session: SparkSession, query: str, now: int | None = None) -> DataFrame:
        self._registrations[session].flush()
        frame = session.sql(query)
        transplant = self._transplant(session)
        scala = transplant.scala
        logical = corrected(scala, with_keys_typed(scala, transplant.logical(frame)))
        if now is not None:
            logical = with_clock_at(scala, logical, now)
        frame = with_one_order(transplant, frame, logical)
        require_kept(frame.schema)
        return frame

    @contextmanager
    def _reading(self, shares: Mapping[RelationId, Share]) -> Iterator[None]:
        """Set the shares that the jobs of this thread read, for the duration of a block."""
        step = Step(f"read-{uuid4().hex}", self.directory, self.partitions, shares, {})
        with step.on_disk(), jobs_of(self.spark, step):
            yield


def _comparison(relation: Table | View, sample: Sample) -> Comparison:
    return Comparison(stored_name(relation), computed_name(relation), relation.schema, sample)
