"""The oracle: after every epoch, every view equals Spark batch over what the test wrote.

The expected side shares nothing with the maintained one but how rows come out of Spark. What a test
writes is kept in plain Python: streams and tables without a key as bags, tables with a primary key
as dicts. After an epoch the views' own texts are evaluated over that by Spark SQL, in a session of
its own and all of them in one job, and compared as bags in Python. It is also held that the incremental path ran: one Spark
job per connected set that changed, and one more per round of a recursion, no fallback, no retry,
work bounded by the change in each of them.

>>> run.table("t", "k INT, v INT", key="k")  # doctest: +SKIP
>>> run.view("v", "SELECT v, count(*) AS n FROM t GROUP BY v")  # doctest: +SKIP
>>> run.insert("t", [(1, 10), (2, 10)])  # doctest: +SKIP
>>> run.epoch()  # makes the epochs that are due, and checks everything  # doctest: +SKIP
>>> run.finish()  # every way to read, VERIFY, compaction, and a restart  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

import headrace
from bags import Bag, Model, bag_of, canonical, difference
from headrace.execution.runtime.attempt import Width
from headrace.interfaces.settings import Settings
from headrace.planning.catalyst.scala import collect_arrow
from length import choose, thorough
from sessions import PARTITIONS, batch_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from bags import Row

ROWS_PER_CHANGE = 8
"""The rows that an operator may take, look up and pass on for each change of an epoch."""

_LOOKUPS = 3
_PAST_EPOCHS = 2
_RESTARTED = 6


class Oracle:
    """One database, what was written to it, and what must follow.

    ``rows_per_change`` bounds the work of an epoch; a join that fans out needs more. ``lookups``
    is False where the hash of keys was tampered with. ``split``: a step may be several jobs.
    ``isolates``: an epoch may try steps to find rows that it quarantines.
    ``rounds`` is how many jobs the recursions of the last epoch took, besides those of an epoch
    without any.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        *,
        rows_per_change: int = ROWS_PER_CHANGE,
        lookups: bool = True,
        split: bool = False,
        isolates: bool = False,
        **settings: Any,
    ) -> None:
        self.spark = spark
        self.small_rows: int = settings.get("small_rows", Settings().small_rows)
        self.batch = batch_session(spark)
        self.directory = directory
        self.settings = {"continuous": False, "partitions": PARTITIONS, **settings}
        self.rows_per_change = rows_per_change
        self.lookups = lookups
        self.split = split
        self.isolates = isolates
        self.models: dict[str, Model] = {}
        self.views: dict[str, str] = {}
        self.epochs = 0
        self.rounds = 0
        self.doubts = 0
        self._defined: dict[str, str] = {}
        self._changelogs: dict[str, Bag] = {}
        self._followed: dict[str, headrace.Subscription] = {}
        self._past: dict[tuple[str, int], Bag] = {}
        self._candidates: dict[str, str] = {}
        self._unchecked: list[str] = []
        self.db = headrace.connect(directory, spark=spark, **self.settings)

    # -- declaring -------------------------------------------------------------------------

    def stream(self, name: str, columns: str) -> None:
        """Create a stream; ``columns`` as in SQL."""
        self.db.sql(f"CREATE STREAM {name} ({columns})")
        self.models[name] = Model.of(name, columns, deletes=False)

    def table(self, name: str, columns: str, key: str = "", effective_from: str = "") -> None:
        """Create a table, with ``key`` as its primary key if it has one, and maybe with versions."""
        primary = f", PRIMARY KEY ({key})" if key else ""
        versions = f" WITH (effective_from = '{effective_from}')" if effective_from else ""
        self.db.sql(f"CREATE TABLE {name} ({columns}{primary}){versions}")
        self.models[name] = Model.of(name, columns, f"{key}, {effective_from}")

    def view(self, name: str, query: str, expected: str | None = None, options: str = "") -> None:
        """Create a view over what is there and follow it; it is checked before the next write.

        ``expected`` is what it must equal in plain Spark SQL, where that is not its own text.
        """
        self._make_epochs()
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
        for model in self.models.values():
            if model.name in _words(query):
                model.advance(len(model.log))
        self.define(name, expected or query)
        self.views[name] = query
        self._follow(name)
        self._unchecked.append(name)

    def define(self, name: str, query: str) -> None:
        """Have a name stand for what a view must equal, in plain Spark SQL."""
        self._register()
        if self._defined.get(name) != query:
            self.batch.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {query}")
            self._defined[name] = query

    def replace_view(self, name: str, query: str) -> None:
        """Replace the query of a view, and check it and everything that reads it at that epoch."""
        self.epoch()
        before = self.db.parts.reader.catalog.resolve(name).id
        self.db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
        assert self.db.parts.reader.catalog.resolve(name).id == before
        for model in self.models.values():
            if model.name in _words(query):
                model.advance(len(model.log))
        self.views[name] = query
        self.define(name, query)
        self._check_views(list(self.views), self.db.parts.ledger.head.epoch)

    def candidate(self, name: str, query: str) -> None:
        """Fill a candidate of a view, which goes on as it is."""
        self.epoch()
        self.db.sql(
            f"CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (auto_swap = false) AS {query}"
        )
        self._candidates[name] = query
        for model in self.models.values():
            if model.name in _words(query):
                model.advance(len(model.log))

    def swap(self, name: str, statement: str) -> None:
        """Let the candidate of a view serve by ``SWAP`` or ``ROLLBACK``, and check as above."""
        self.epoch()
        before = self._ids()
        self.db.sql(f"{statement} VIEW {name}")
        self.views[name], self._candidates[name] = self._candidates[name], self.views[name]
        self._define_again(before)

    def alter_view(self, name: str, query: str) -> None:
        """Give a view a query that may have other columns, and check everything at that epoch."""
        self.epoch()
        before = self._ids()
        self.db.sql(f"ALTER MATERIALIZED VIEW {name} AS {query}")
        for model in self.models.values():
            if model.name in _words(query):
                model.advance(len(model.log))
        self.views[name] = query
        self._define_again(before)

    def rebuild(self, name: str, how: str = "") -> None:
        """Compute a view again, and check everything at the epoch in which it serves."""
        self.epoch()
        self.db.sql(f"REBUILD VIEW {name} {how}")
        self._check_views(list(self.views), self.db.parts.ledger.head.epoch)

    def _ids(self) -> dict[str, int]:
        return {name: self.db.parts.reader.catalog.resolve(name).id for name in self.views}

    def _define_again(self, before: dict[str, int]) -> None:
        """Have names mean what they mean now; follow views with other columns from their rows."""
        for name, id_ in self._ids().items():
            self._defined.pop(name)
            self.define(name, self.views[name])
            if id_ != before[name]:
                with pytest.raises(headrace.HeadraceError, match=r"other columns|was dropped"):
                    self._followed[name].poll()
                self._followed.pop(name).close()
                self._past = {key: bag for key, bag in self._past.items() if key[0] != name}
                self._follow(name)
        self._check_views(list(self.views), self.db.parts.ledger.head.epoch)

    def drop_view(self, name: str) -> None:
        """Drop a view."""
        self.check_new_views()
        self._followed.pop(name).close()
        self.db.sql(f"DROP MATERIALIZED VIEW {name}")
        self.batch.catalog.dropTempView(name)
        del self._defined[name]
        del self.views[name], self._changelogs[name]

    def alter(
        self,
        statement: str,
        name: str,
        columns: str,
        row: Callable[[Row], Row] = lambda row: row,
        views: dict[str, str] | None = None,
        to: str | None = None,
        key: str | None = None,
    ) -> None:
        """Alter a stream or table, and check the views over it at that epoch: they go on.

        ``columns`` are those it has then, ``row`` returns a row of it from a former one, ``views``
        are queries of views in plain Spark SQL, where they name something else now. ``to`` is
        its new name, ``key`` its primary key if that has another name.
        """
        self.epoch()
        builds = {v.name: v.build for v in self.db.parts.reader.catalog.views_in_order()}
        self.db.sql(statement)
        former = self.models.pop(name)
        by = key or ",".join(former.key)
        model = Model.of(to or name, columns, by, deletes=former.deletes)
        model.write([(weight, row(each)) for weight, each in former.log])
        model.advance(former.position)
        self.models[model.name] = model
        self._register()
        for view, query in (views or {}).items():
            self.views[view] = query
            self.define(view, query)
        catalog = self.db.parts.reader.catalog
        assert builds == {v.name: v.build for v in catalog.views_in_order()}
        self._check_views(list(self.views), self.db.parts.ledger.head.epoch)

    # -- writing ---------------------------------------------------------------------------

    def insert(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows; by primary key, they replace those that are there."""
        self.check_new_views()
        given = [tuple(row) for row in rows]
        self.db.insert(name, given)
        self.models[name].write([(1, row) for row in given])

    def log(self, name: str, changes: Iterable[tuple[int, Sequence[Any]]]) -> None:
        """Append changes as a change log delivers them: rows inserted (+1) and deleted (-1)."""
        self.check_new_views()
        model = self.models[name]
        given = [(weight, tuple(row)) for weight, row in changes]
        rows = model.arrow([row for _, row in given])
        if not model.deletes:
            self.db.insert(name, rows)
            model.write(given)
            return
        weights = pa.array([weight for weight, _ in given], pa.int64())
        parts = self.db.parts
        relation = parts.reader.catalog.resolve(name)
        parts.log.append(relation, rows.append_column("__weight", weights))
        model.write(given)

    def update(self, name: str, assignments: dict[str, str], where: str = "true") -> int:
        """Update the rows that match; return how many did."""
        self.epoch()
        model = self.models[name]
        names = model.names
        new = [
            f"CASE WHEN {where} THEN CAST(({assignments[n]}) AS {model.sql_type(n)}) END"
            if n in assignments
            else n
            for n in names
        ]
        found = self._matching(name, [*names, *new], where)
        old = [row[: len(names)] for row in found]
        set_ = ", ".join(f"{column} = {value}" for column, value in assignments.items())
        self.db.sql(f"UPDATE {name} SET {set_} WHERE {where}")
        gone = not model.key or not set(assignments).isdisjoint(model.key)
        changes = [(-1, row) for row in old] if gone else []
        model.write(changes + [(1, row[len(names) :]) for row in found], ordered=False)
        return len(found)

    def delete(self, name: str, where: str = "true") -> int:
        """Delete the rows that match; return how many did."""
        self.epoch()
        found = self._matching(name, self.models[name].names, where)
        self.db.sql(f"DELETE FROM {name} WHERE {where}")
        self.models[name].write([(-1, row) for row in found], ordered=False)
        return len(found)

    def truncate(self, name: str) -> int:
        """Delete all rows."""
        self.epoch()
        found = self._matching(name, self.models[name].names, "true")
        self.db.sql(f"TRUNCATE TABLE {name}")
        self.models[name].write([(-1, row) for row in found], ordered=False)
        return len(found)

    def _matching(self, name: str, columns: Sequence[str], where: str) -> list[Row]:
        aliased = ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns))
        found = collect_arrow(self.batch.sql(f"SELECT {aliased} FROM {name} WHERE {where}"))
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    # -- checking --------------------------------------------------------------------------

    def epoch(self) -> int:
        """Make epochs until nothing is pending, checking each; return how many were made."""
        self.check_new_views()
        return self._make_epochs()

    def check_new_views(self) -> None:
        """Check the first contents of the views created since the last check.

        A short run leaves out views over nothing: their first rows are checked with the next ones.
        """
        names, self._unchecked = self._unchecked, []
        if names and (thorough() or any(model.log for model in self.models.values())):
            self._check_views(names, self.db.parts.ledger.head.epoch)

    def _make_epochs(self) -> int:
        made = 0
        while self._advance():
            made += 1
        assert self.db.pending() == 0
        return made

    def rows(self, name: str) -> list[Row]:
        """Return a view's rows, in the order of their text."""
        table = self.db.sql(f"SELECT * FROM {name}").to_arrow()
        found = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return sorted(found, key=repr)

    def finish(self) -> None:
        """Check every way to read, the past, compaction and a restart.

        In a short run only some tests, by the names of their views, verify and restart.
        """
        self.epoch()
        for name in self._read_by_spark():
            self._check_reading_by_spark(name)
        for name in self.views:
            self._check_lookups(name)
        for (name, epoch), expected in self._past.items():
            if name not in self.views:
                continue  # dropped, and its past with it
            table = self.db.sql(f"SELECT * FROM {name} AS OF EPOCH {epoch}").to_arrow()
            self._agree(name, f"AS OF EPOCH {epoch}", bag_of(table), expected)
        self.db.compact()
        self._check_contents("after compaction")
        if choose(crc32(" ".join(self.views).encode()) % _RESTARTED == 0, long=True):
            self.verify(*list(self.views)[-1:])
            self.reopen()

    def verify(self, *names: str) -> None:
        """Have the database check some of its views."""
        found = [row for name in names for row in self.db.sql(f"VERIFY {name}").fetchall()]
        assert [view for view, *_ in found] == list(names)
        for view, rows, differences, verdict in found:
            assert (differences, verdict) == (0, "equal to batch"), (view, self.views[view])
            assert rows <= sum(self._changelogs[view].values())

    def reopen(self) -> None:
        """Close the database, open it again, and compare."""
        self.db.close()
        self.db = headrace.connect(self.directory, spark=self.spark, **self.settings)
        self._check_contents("after a restart")
        for name, bag in self._changelogs.items():
            self._follow(name)
            self._agree(name, "a new subscription", self._changelogs[name], bag)

    def close(self) -> None:
        """Close the database as it is."""
        self.db.close()

    def _advance(self) -> bool:
        context = self.spark.sparkContext
        before = {name: model.position for name, model in self.models.items()}
        self.doubts = self._doubts()
        group = uuid4().hex
        context.setJobGroup(group, "an epoch")
        try:
            epoch = self.db.parts.loop.advance()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        if epoch is None:
            return False
        self.epochs += 1
        positions = self.db.parts.ledger.head.positions
        for name, model in self.models.items():
            relation = self.db.parts.reader.catalog.resolve(name)
            model.advance(positions.get(relation.id, model.position))
        changed = {n: m.position - before[n] for n, m in self.models.items()}
        self._check_counters({n: c for n, c in changed.items() if c}, self._jobs(group))
        self._register()
        if all(model.settled for model in self.models.values()):
            self._check_views(list(self.views), epoch)
        return True

    def _doubts(self) -> int:
        programs = self.db.parts.engine.programs.programs()
        return sum(p.staged.doubts for p in programs if p.staged is not None)

    def _jobs(self, group: str) -> int:
        context = self.spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        return len(context.statusTracker().getJobIdsForGroup(group))

    def _check_counters(self, changed: dict[str, int], jobs: int) -> None:
        counters = self.db.parts.ledger.epochs.newest(1)[0].counters
        changes = sum(changed.values())
        assert counters["changes"] == changes
        assert counters["fallbacks"] == 0
        self.rounds = counters["rounds"]
        # A step with a value in doubt is run again.
        doubts = self._doubts() - self.doubts
        least = self._wide_sets(changed) + self.rounds + doubts
        width = Width(counters["width"])
        if width is Width.NARROW:
            assert counters["jobs"] == jobs or self.isolates, self._reason()
        elif self.isolates:
            assert counters["jobs"] == least <= jobs, self._reason()
        else:
            assert counters["jobs"] == jobs, self._reason()
            assert jobs > least if self.split else jobs == least, self._reason()
        catalog, circuits = self.db.parts.reader.catalog, self.db.parts.engine.circuit
        found = [circuits(v) for v in catalog.views_in_order()]
        assert not self.rounds or any(c.loops() for c in found)
        operators = sum(len(c.stateful()) + len(c.loops()) + len(c.guards()) for c in found)
        most = PARTITIONS * (operators + len(self.models)) * (1 + self.rounds)
        assert counters["operators"] <= most
        assert (width is Width.MANY_CHANGES) == (changes > self.small_rows) or self.split
        assert jobs <= most
        work = counters["rows_in"] + counters["rows_read"] + counters["rows_out"]
        assert work <= (self.rows_per_change * changes + 4) * most, counters
        assert not self.db.parts.loop.stopped()

    def _reason(self) -> str:
        return "\n".join(entry.detail for entry in self.db.parts.ledger.head.dirty)

    def _wide_sets(self, changed: dict[str, int]) -> int:
        """Return how many connected sets have too many changes for a narrow step."""
        sets = [{name} for name in self.models]
        catalog = self.db.parts.reader.catalog
        for view in catalog.views_in_order():  # candidates too, which epochs step as well
            touched = {view.name, *(catalog.by_id[id_].name for id_ in view.depends_on)}
            joined = [s for s in sets if s & touched]
            sets = [s for s in sets if not s & touched] + [set().union(touched, *joined)]
        rows = [sum(changed.get(name, 0) for name in each) for each in sets]
        return sum(count > self.small_rows for count in rows)

    def _check_views(self, names: Sequence[str], epoch: int) -> None:
        expected = self._expected(names)
        for name in names:
            self._check_view(name, epoch, expected[name])

    def _check_view(self, name: str, epoch: int, expected_table: pa.Table) -> None:
        actual_table = self.db.sql(f"SELECT * FROM {name}").to_arrow()
        assert actual_table.schema.names == expected_table.schema.names
        assert _types(actual_table) == _types(expected_table), name
        expected = bag_of(expected_table)
        self._agree(name, f"epoch {epoch}", bag_of(actual_table), expected)
        self._check_key(name, expected_table.schema.names, expected)
        self._take_changes(name, epoch)
        self._agree(name, f"the changelog up to {epoch}", self._changelogs[name], expected)
        self._past = {k: b for k, b in self._past.items() if k[0] != name or self._recent(k)}
        self._past[name, epoch] = expected

    def _check_key(self, name: str, columns: Sequence[str], expected: Bag) -> None:
        """Check that no two rows of Spark's agree in the columns that are the view's key."""
        view = self.db.parts.reader.catalog.resolve(name)
        if view.single:
            assert expected.total() <= 1, f"view {name} has several rows:\n{self.views[name]}"
        places = [list(columns).index(column) for column in view.key]
        found = Counter[tuple[Any, ...]]()
        for row, count in expected.items():
            found[tuple(row[place] for place in places)] += count
        twice = [key for key, count in found.items() if places and count > 1]
        assert not twice, f"view {name} has rows of one key {view.key}:\n{self.views[name]}"

    def _expected(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """Return what views must equal, computed by Spark batch in one job."""
        try:
            return apart(names, collect_arrow(self.batch.sql(side_by_side(names))))
        except (PySparkException, Py4JError):  # Spark fails over several that it can do alone
            return {name: collect_arrow(self.batch.table(f"`{name}`")) for name in names}

    def _recent(self, slot: tuple[str, int]) -> bool:
        epochs = sorted(epoch for name, epoch in self._past if name == slot[0])
        return slot[1] in epochs[-_PAST_EPOCHS:]

    def _take_changes(self, name: str, epoch: int) -> None:
        """Add up what a subscriber gets; after the first rows, each changes once in an epoch."""
        first = not self._followed[name].epoch
        fields = list(self._followed[name]._follower.history.layout.columns)
        changes = self._followed[name].poll() or []
        log, seen = self._changelogs[name], Counter()
        for change in changes:
            assert change.weight != 0
            assert (change.operation in ("+I", "+U")) == (change.weight > 0)
            assert change.epoch <= epoch
            identity = tuple(canonical(change.row[f.name], f.type) for f in fields)
            seen[change.epoch, identity] += 1
            log[identity] += change.weight
            if not log[identity]:
                del log[identity]
        assert first or set(seen.values()) <= {1}

    def _check_contents(self, when: str) -> None:
        for name in self.views:
            actual = bag_of(self.db.sql(f"SELECT * FROM {name}").to_arrow())
            self._agree(name, when, actual, self._changelogs[name])

    def _read_by_spark(self) -> list[str]:
        """Return the views to be read by Spark as well: one, or all in a thorough run."""
        names = list(self.views)
        return names if thorough() else names[len(names) // 2 :][:1]

    def _check_reading_by_spark(self, name: str) -> None:
        found = self.db.sql(f"SELECT {name}.* FROM {name}").to_arrow()
        self._agree(name, "a select by Spark", bag_of(found), self._changelogs[name])

    def _check_lookups(self, name: str) -> None:
        key = self.db.parts.reader.catalog.resolve(name).key
        if not key or not self.lookups:
            return
        whole = self.db.sql(f"SELECT * FROM {name}").to_arrow()
        for row in whole.slice(0, _LOOKUPS).to_pylist():
            literals = [_literal(row[column]) for column in key]
            if None in literals:
                continue
            where = " AND ".join(f"`{c}` = {v}" for c, v in zip(key, literals, strict=True))
            found = self.db.sql(f"SELECT * FROM {name} WHERE {where}").to_arrow()
            wanted = pa.Table.from_pylist(
                [r for r in whole.to_pylist() if all(r[c] == row[c] for c in key)], whole.schema
            )
            self._agree(name, f"WHERE {where}", bag_of(found), bag_of(wanted))

    def _agree(self, name: str, what: str, actual: Bag, expected: Bag) -> None:
        if actual != expected:
            text = difference(actual, expected)
            raise AssertionError(f"view {name} differs in {what}:\n{self.views[name]}\n{text}")

    def _follow(self, name: str) -> None:
        self._followed[name] = self.db.subscribe(name)
        self._changelogs[name] = Counter()
        self._take_changes(name, self.db.parts.ledger.head.epoch)

    def _register(self) -> None:
        for model in self.models.values():
            if model.stale:
                frame = self.batch.createDataFrame(model.table(), model.schema)
                frame.coalesce(1).createOrReplaceTempView(model.name)
                model.stale = False


def side_by_side(names: Sequence[str]) -> str:
    """Return a query for the rows of several relations, which :func:`apart` takes apart.

    Each row has the number of its relation, and one struct per relation, NULL but for its own.
    """
    parts = []
    for number, name in enumerate(names):
        columns = ", ".join(
            f"struct(`{name}`.*) AS r{i}" if i == number else f"NULL AS r{i}"
            for i in range(len(names))
        )
        parts.append(f"SELECT {number} AS relation, {columns} FROM `{name}`")
    return " UNION ALL ".join(parts)


def apart(names: Sequence[str], rows: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each relation from the answer to :func:`side_by_side`."""
    found = {}
    for number, name in enumerate(names):
        own = rows.filter(pc.equal(rows["relation"], number))[f"r{number}"].combine_chunks()
        found[name] = pa.table(own.flatten(), names=[field.name for field in own.type])
    return found


def _words(query: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"'(?:\\.|[^'\\])*'", "", query)))


def _types(table: pa.Table) -> list[DataType]:
    """Return the types of the columns, with NULL allowed anywhere within them."""
    return [field.dataType for field in from_arrow_schema(table.schema).toNullable()]


def _literal(value: Any) -> str | None:
    """Return a plain literal, or None for what a lookup by key does not take."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and "'" not in value and "\\" not in value:
        return f"'{value}'"
    return None
