"""Runs cases by the oracle, and says of each view whether it agreed with Spark batch."""

from __future__ import annotations

import logging
import re
import tempfile
import traceback
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from generator.cases import Case, View
from generator.changes import Epoch
from harness import Oracle
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.lowering import programs
from headrace.planning.catalyst.scala import collect_arrow
from headrace.planning.circuit import reuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

_MOST_RUNS = 12
_AGAIN = "_again"
_BATCH_ERRORS = (PySparkException, Py4JJavaError)
"""How a query fails in Spark; the latter where Spark itself is at fault."""

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_OF_DATA = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("ConvertToLocalRelation", "PropagateEmptyRelation")
)
"""What Spark can do only where it sees what a relation holds."""

_OVER_SESSIONS = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
)
"""What Spark does wrong over sessions: a condition on their bounds is taken below them, to the
windows of single rows, so sessions lose rows (decision 15)."""

_CALL = "now()"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (as Spark reads a literal, in the session's zone)
_START = (datetime(2024, 2, 28, 22, 50) - _EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
_STEP = timedelta(minutes=17) // timedelta(microseconds=1)


class RandomOracle(Oracle):
    """The oracle, without what it derives from the words of a query.

    Spark may drop a relation whose rows cannot matter, and then it is not one of the view's: how
    many jobs an epoch takes, and over how many operators, is held by other tests.
    """

    def __init__(self, spark: SparkSession, directory: Path, **settings: int) -> None:
        self._now = _START
        super().__init__(spark, directory, clock=lambda: self._now, **settings)
        self._texts: dict[str, str] = {}
        self._known: dict[str, tuple[object, pa.Table]] = {}

    def passes(self) -> None:
        """Let time pass, once the new views have been checked: a read makes what is due by then."""
        self.check_new_views()
        self._now += _STEP

    def define(self, name: str, query: str) -> None:
        """Have a name stand for a query in which the clock stands at the last epoch's time."""
        clock = _EPOCH + timedelta(microseconds=self.db.parts.ledger.epochs.clock())
        if "session_window" in query:
            self.batch.conf.set(_EXCLUDED, _OVER_SESSIONS)
        super().define(name, query.replace(_CALL, f"TIMESTAMP '{clock}'"))
        self._texts[name] = query

    def _check_counters(self, changed: dict[str, int], jobs: int) -> None:
        del jobs
        counters = self.db.parts.ledger.epochs.newest(1)[0].counters
        assert counters["changes"] == sum(changed.values())
        assert counters["fallbacks"] == 0, self._reason()
        assert not self.db.parts.loop.stopped()

    def _expected(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """Ask Spark only where what a view's answer follows from has changed since it was asked."""
        for name, text in self._texts.items():
            if _CALL in text:
                self.define(name, text)
        states = {name: self._state(name) for name in names}
        asked = [n for n in names if n not in self._known or self._known[n][0] != states[n]]
        try:
            answers = self._together(asked) if len(asked) > 1 else None
        except _BATCH_ERRORS:
            answers = None  # Spark may fail over the union alone
        if answers is None:
            answers = super()._expected(asked)
        self._known |= {name: (states[name], answer) for name, answer in answers.items()}
        return {name: self._known[name][1] for name in names}

    def _together(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """Have Spark answer the queries of several views in one job.

        Each has a column of its own: an array around each row, since structs that are NULL have
        no fields that are not.
        """
        selects = (
            ", ".join(
                [
                    f"{i} AS place",
                    *(f"{'array(struct(*))' if n == name else 'NULL'} AS {n}" for n in names),
                ]
            )
            + f" FROM {name}"
            for i, name in enumerate(names)
        )
        text = " UNION ALL ".join(f"(SELECT {select})" for select in selects)
        text = f"SELECT /*+ COALESCE(1) */ * FROM ({text})"
        found = collect_arrow(self.batch.sql(text))
        answers = {}
        for i, name in enumerate(names):
            rows = pc.list_flatten(found.filter(pc.equal(found["place"], i))[name])
            fields = [field.name for field in rows.type]
            answers[name] = pa.Table.from_arrays(rows.flatten(), names=fields)
        return answers

    def _state(self, name: str) -> object:
        """Return what a view's answer follows from: texts, and positions in the change logs."""
        text = self._defined[name]
        named = words(text)
        views = sorted((named & self.views.keys()) - {name})
        return (
            text,
            {each: self.models[each].position for each in sorted(named & self.models.keys())},
            [self._state(view) for view in views],
        )


class Verdict(StrEnum):
    """What became of a view."""

    AGREED = "agreed"
    REFUSED = "refused"
    BATCH_ERROR = "batch error"
    """The query fails in Spark itself."""
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a view, and why."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A defect that a case shows; ``sort`` is the same while it is the same defect, about."""

    sort: str
    text: str
    view: str | None


class BatchError(Exception):
    """Some views' queries fail in Spark itself: the case can go on without them."""

    def __init__(self, views: dict[str, str]) -> None:
        super().__init__(*views)
        self.views = views


class Failed(Exception):  # noqa: N818
    """A case shows a defect."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@dataclass(slots=True)
class Run:
    """The outcomes of a case's views, and the defects that it shows."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


class Player:
    """Plays cases in one Spark session, each over a database of its own.

    Steps over few rows are narrow: they run in this process. With
    ``parted``, every step is run as one over many rows is: as jobs, in all partitions, by generated
    code, and sets of changed relations share programs as soon as they can. With ``again``, each
    view is filled once more before the last epoch, from all state of the first that can be taken
    over; ``taken_over`` counts the views that took some.
    """

    def __init__(self, spark: SparkSession, *, parted: bool = False, again: bool = False) -> None:
        self.spark = spark
        self.parted = parted
        self.again = again
        self.taken_over = 0
        self.batch = spark.newSession()
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors are expected

    def run(self, case: Case) -> Run:
        """Play a case; after a failure, again without the view that is to blame."""
        result, rest = Run(), case
        for _ in range(_MOST_RUNS):
            if not rest.views:
                break
            try:
                result.outcomes.update(self.play(rest))
                break
            except BatchError as error:
                for name, reason in error.views.items():
                    result.outcomes[name] = Outcome(Verdict.BATCH_ERROR, reason)
                rest = without(rest, error.views)
            except Failed as failed:
                failure = self._blamed(rest, failed.failure)
                result.failures.append(failure)
                if failure.view is None:
                    break
                result.outcomes[failure.view] = Outcome(Verdict.FAILED, failure.text)
                rest = without(rest, [failure.view])
        return result

    def play(self, case: Case) -> dict[str, Outcome]:
        """Play a case once.

        Raises:
            BatchError: a query is not one of Spark's, or fails on the rows.
            Failed: a view is wrong, or something else that is checked does not hold.
        """
        outcomes: dict[str, Outcome] = {}
        sets = 1 if self.parted else programs.MOST_SETS
        with (
            tempfile.TemporaryDirectory(prefix="headrace-random-") as directory,
            patch.object(programs, "MOST_SETS", sets),
            patch.multiple(reuse, _READS_PER_ROW=0, _COPIES_PER_ROW=1 << 40),
        ):
            settings = {"small_rows": 0} if self.parted else {}
            settings |= {"reuse_rows": 0 if self.again else 1 << 40}
            last = case.epochs[-1] if self.again and case.epochs else None
            run = RandomOracle(self.spark, Path(directory) / "db", **settings)
            try:
                for relation in case.relations:
                    if relation.stream:
                        run.stream(relation.name, relation.columns_sql)
                    else:
                        run.table(relation.name, relation.columns_sql, ", ".join(relation.key))
                for step in case.steps:
                    if step is last:
                        self._create_again(run, case, outcomes)
                    if isinstance(step, View):
                        outcomes[step.name] = _create(run, step, outcomes)
                    elif run.views:
                        _step(run, step)
                    elif isinstance(step, Epoch):
                        _write(run, step)
            finally:
                run.close()
        return outcomes

    def _create_again(self, run: Oracle, case: Case, outcomes: dict[str, Outcome]) -> None:
        """Create the views again that agree, with other names."""
        for view in case.views:
            if view.name in outcomes and outcomes[view.name].verdict is Verdict.AGREED:
                name = f"{view.name}{_AGAIN}"
                if _created(run, name, view).verdict is Verdict.AGREED:
                    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
                    self.taken_over += "taken_over" in counters

    def _blamed(self, case: Case, failure: Failure) -> Failure:
        """Find the view that fails alone, where the failure does not name it."""
        if failure.view is not None:
            return failure
        for view in case.views:
            try:
                self.play(only(case, view))
            except Failed as failed:
                return replace(failed.failure, view=view.name)
            except BatchError:
                continue
        return failure


def without(case: Case, names: Iterable[str]) -> Case:
    """Return the case without some views, and the views over them."""
    gone = set(names)
    steps = []
    for step in case.steps:
        if isinstance(step, View) and (step.name in gone or words(step.sql) & gone):
            gone.add(step.name)
        else:
            steps.append(step)
    return replace(case, steps=tuple(steps))


def only(case: Case, view: View) -> Case:
    """Return the case with one view and the views below it."""
    kept = {view.name}
    for other in reversed(case.views):
        if other.name in kept:
            kept |= words(other.sql)
    steps = (s for s in case.steps if not isinstance(s, View) or s.name in kept)
    return replace(case, steps=tuple(steps))


def words(text: str) -> set[str]:
    """Return the words of a query, among them the relations that it reads."""
    return set(re.findall(r"\w+", text))


def _create(run: Oracle, view: View, outcomes: dict[str, Outcome]) -> Outcome:
    for name in words(view.sql) & outcomes.keys():
        if outcomes[name].verdict is not Verdict.AGREED:
            return Outcome(outcomes[name].verdict, "(over such a view)")
    return _created(run, view.name, view)


def _created(run: Oracle, name: str, view: View) -> Outcome:
    try:
        run.epoch()
        run.define(name, view.sql)
    except _BATCH_ERRORS as error:
        return Outcome(Verdict.BATCH_ERROR, _condition(error))
    except Exception as error:
        raise Failed(_failure(error, None)) from error
    try:
        run.view(name, view.sql)
    except Exception as error:
        if isinstance(error, HeadraceError) and error.code is Code.UNSUPPORTED:
            reason = re.sub(r"#\d+|\br\d+\.", "", error.primary)
            return Outcome(Verdict.REFUSED, reason)
        _raise_broken(run, [name])
        raise Failed(_failure(error, view.name)) from error
    return Outcome(Verdict.AGREED)


def _step(run: Oracle, step: object) -> None:
    try:
        if isinstance(step, Epoch):
            run.passes()
            _write(run, step)
            run.epoch()
        else:
            run.db.compact()
            run.reopen()
    except Exception as error:
        _raise_broken(run, run.views)
        raise Failed(_failure(error, None)) from error


def _write(run: Oracle, epoch: Epoch) -> None:
    for name, changes in epoch.changes.items():
        run.log(name, changes)


def _raise_broken(run: Oracle, views: Iterable[str]) -> None:
    """Raise BatchError where the queries of some views fail on what the models hold now.

    They are asked as the oracle asks, and as if Spark did not see what a relation holds: of an
    empty one it drops constants that cannot be evaluated, and makes plans that it cannot run.
    """
    broken = {}
    for model in run.models.values():
        model.advance(len(model.log))
    run._register()
    excluded = run.batch.conf.get(_EXCLUDED, None) or ""
    for also in ("", f",{_OF_DATA}"):
        run.batch.conf.set(_EXCLUDED, excluded + also)
        for name in views:
            try:
                collect_arrow(run.batch.table(name))
            except _BATCH_ERRORS as error:
                broken[name] = _condition(error)
    run.batch.conf.set(_EXCLUDED, excluded)
    if broken:
        raise BatchError(broken)


def _condition(error: Exception) -> str:
    try:
        found = error.getCondition() if isinstance(error, PySparkException) else None
    except Exception:  # noqa: BLE001  (it asks the JVM, which may have nothing to say)
        found = None
    return found or str(error).splitlines()[0][:120]


def _failure(error: Exception, view: str | None) -> Failure:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error) or f"{place.line} in {place.name}"
    named = re.match(r"view (\w+) differs in (the changelog)?", text)
    if named:
        return Failure(f"wrong {named[2] or 'rows'}", text, named[1].removesuffix(_AGAIN))
    if isinstance(error, HeadraceError):
        primary = re.sub(r"\d+|\"[^\"]*\"", "#", error.primary)
        return Failure(f"{error.code}: {primary}", text, view)
    first = re.sub(r"\d+", "#", text.splitlines()[0])[:80]
    return Failure(f"{type(error).__name__}: {first}", text, view)
