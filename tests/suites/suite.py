"""A published workload: its relations, its queries, and which of these are not kept yet.

A suite is a directory with ``schema.sql`` and one file per query. ``not_kept.txt`` lists the
queries that a view refuses, with the reason; one that is kept after all makes its test fail, so
that the list stays true.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bags import Model, bag_of
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bags import Bag
    from harness import Oracle

HERE = Path(__file__).parent
ROWS_PER_CHANGE = 100_000
"""One change of a nation's name touches everything; what a change may cost is held elsewhere."""

_RELATION = re.compile(
    r"CREATE (?P<kind>TABLE|STREAM) (?P<name>\w+) \(\s*(?P<columns>.*?)"
    r"(?:,\s*PRIMARY KEY \((?P<key>[^)]*)\))?\s*\);",
    re.DOTALL,
)


@dataclass(frozen=True)
class Relation:
    """A table or stream; ``columns`` and ``key`` as in SQL."""

    kind: str
    name: str
    columns: str
    key: str


@dataclass(frozen=True)
class Suite:
    """A workload by the name of its directory."""

    name: str

    @cached_property
    def relations(self) -> list[Relation]:
        """What its queries read."""
        text = (HERE / self.name / "schema.sql").read_text("utf-8")
        return [
            Relation(kind, name, columns, key)
            for kind, name, columns, key in _RELATION.findall(text)
        ]

    @cached_property
    def queries(self) -> dict[str, str]:
        """Its queries by name, without their comments."""
        files = sorted((HERE / self.name).glob("q*.sql"))
        return {
            file.stem: re.sub(r"--[^\n]*\n", "", file.read_text("utf-8")).strip() for file in files
        }

    @cached_property
    def not_kept(self) -> dict[str, str]:
        """The queries that a view refuses, and why."""
        return {query: reason for suite, query, reason in _listed() if suite == self.name}


def _listed() -> Iterator[tuple[str, str, str]]:
    for line in (HERE / "not_kept.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            suite, query, reason = line.split(maxsplit=2)
            yield suite, query, reason


class Run:
    """Some queries of a suite as views of one oracle, and how full each has been."""

    def __init__(self, suite: Suite, oracle: Oracle) -> None:
        self.suite = suite
        self.oracle = oracle
        self.fullest: Counter[str] = Counter()
        self._watched: list[str] = []
        self._beside = oracle.spark.newSession()
        for relation in suite.relations:
            if relation.kind == "TABLE":
                oracle.table(relation.name, relation.columns, relation.key)
            else:
                oracle.stream(relation.name, relation.columns)

    def view(self, names: Iterable[str]) -> None:
        """Create views, or see them refused where that is what the list says."""
        self.oracle.epoch()
        for name in names:
            if name in self.suite.not_kept:
                self._refused(name)
            else:
                self.oracle.view(name, self.suite.queries[name])
        self._look()

    def epoch(self) -> None:
        """Make the epochs that are due and check each."""
        self.oracle.epoch()
        self._look()

    def hold(self) -> None:
        """Hold that no view was empty all the time."""
        empty = [name for name in [*self.oracle.views, *self._watched] if not self.fullest[name]]
        assert not empty, f"{empty} were empty at every epoch, so they prove nothing"

    def _refused(self, name: str) -> None:
        query = self.suite.queries[name]
        try:
            self.oracle.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        except HeadraceError as error:
            assert error.code == Code.UNSUPPORTED, (name, error)  # noqa: PT017
        else:
            pytest.fail(f"{self.suite.name} {name} is kept now: take it off not_kept.txt")
        self._watched.append(name)

    def _look(self) -> None:
        for name in self.oracle.views:
            self._note(name, self.oracle._changelogs[name])
        missed = [name for name in self._watched if not self.fullest[name]]
        if missed:
            self._copy()
        for name in missed:
            self._note(name, bag_of(self._beside.sql(self.suite.queries[name]).toArrow()))

    def _copy(self) -> None:
        """Show plain Spark all that was written, whether or not a view reads it."""
        for name, model in self.oracle.models.items():
            copy = Model(name, model.schema, model.key, model.log, deletes=model.deletes)
            copy.advance(len(copy.log))
            frame = self._beside.createDataFrame(copy.table(), copy.schema)
            frame.createOrReplaceTempView(name)

    def _note(self, name: str, bag: Bag) -> None:
        self.fullest[name] = max(self.fullest[name], full(bag))


def full(bag: Bag) -> int:
    """Count the rows that say something: a global aggregate over nothing has NULLs and zeros."""
    return sum(
        n for row, n in bag.items() if any(value is not None and value != 0 for value in row)
    )
