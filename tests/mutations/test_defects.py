"""Mutation of our own operators: reconciliation finds what each of many defects makes wrong.

Each defect is put into the code that maintains views, a random history is run with it, and it is
taken out again. Reconciliation, as it runs in the background, must then find a row that is wrong
before it has compared every slice once, and have all views repaired: they are as batch makes them.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter

import pytest

import headrace
from headrace.lifecycle.history import comparing
from headrace.lifecycle.history.reconciler import Reconciler
from mutations.active import active, code_of
from mutations.defects import DEFECTS

VIEWS = {
    "inner_": "SELECT a.k, b.k AS j, a.v, b.w FROM a JOIN b ON a.g = b.g",
    "left_": "SELECT a.k, a.v, b.w FROM a LEFT JOIN b ON a.g = b.g",
    "semi_": "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.g = a.g)",
    "anti_": "SELECT k, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.g = a.g)",
    "any_": "SELECT a.k, a.v, b.w FROM a LEFT JOIN b ON a.g = b.g AND a.v < b.w",
    "sums": "SELECT g, count(*) AS n, sum(v) AS s FROM a GROUP BY g",
    "ends": "SELECT g, min(v) AS lo, max(v) AS hi FROM a GROUP BY g",
    "values_": "SELECT g, count(DISTINCT v) AS n, sum(DISTINCT v) AS s FROM a GROUP BY g",
    "both": "SELECT k, v FROM a UNION ALL SELECT k, w FROM b",
    "logged": "SELECT x % 300 AS m, count(*) AS n, sum(x) AS s FROM s GROUP BY x % 300",
    "keyed": "SELECT k, v FROM a",
    "top": "SELECT k, v FROM a ORDER BY v DESC, k LIMIT 40 OFFSET 3",
    "ranked": """SELECT g, k, v, r FROM
        (SELECT *, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM a) WHERE r <= 2""",
    "listed": "SELECT g, sort_array(collect_list(v)) AS vs FROM a GROUP BY g",
    "recent": "SELECT k, at FROM a WHERE at >= now() - INTERVAL '1' HOUR",
}

ROWS = 1600
HOUR = 3_600_000_000


class History:
    """One database with a view and the tables or the stream that it reads; and writes to it."""

    def __init__(self, directory, spark, view: str) -> None:
        self.now = 1_700_000_000_000_000
        self.db = headrace.connect(
            directory,
            spark=spark,
            partitions=2,
            continuous=False,
            small_rows=0,
            clock=lambda: self.now,
        )
        self.draw = random.Random(view)
        query = VIEWS[view]
        self.groups: dict[str, dict[int, int | None]] = {
            name: {} for name in ("a", "b") if _reads(query, name)
        }
        """The groups of the rows of each table, by key."""
        self.streams = _reads(query, "s")
        for name, rows in (("a", ROWS), ("b", ROWS // 4)):
            if name in self.groups:
                value = "v" if name == "a" else "w"
                columns = f"k INT PRIMARY KEY, g INT, {value} INT, at TIMESTAMP"
                self.db.sql(f"CREATE TABLE {name} ({columns})")
                self.upsert(name, range(rows))
        if self.streams:
            self.db.sql("CREATE STREAM s (x INT)")
            self.append(ROWS)
        self.db.flush()
        self.db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")

    def upsert(self, name: str, keys) -> None:
        """Rows about groups of a few rows, some with NULL, and times of the hours around now."""
        draw, value = self.draw, "v" if name == "a" else "w"
        rows = [
            {
                "k": key,
                "g": None if draw.random() < 0.03 else draw.randrange(ROWS // 4),
                value: draw.randrange(20),
                "at": _timestamp(self.now + draw.randrange(-3 * HOUR, HOUR)),
            }
            for key in keys
        ]
        self.db.insert(name, rows)
        self.groups[name] |= {row["k"]: row["g"] for row in rows}

    def append(self, rows: int) -> None:
        if self.streams:
            self.db.insert("s", [{"x": self.draw.randrange(10_000)} for _ in range(rows)])

    def go_on(self, *, keeps_groups: bool = False) -> None:
        """Two epochs in which rows come, go and change, one in which they come; time passes.

        Some groups end, unless they are kept.
        """
        for name in self.groups:
            self.change(name, keeps_groups=keeps_groups)
        self.append(100)
        self.pass_time()
        for name in self.groups:
            self.change(name, keeps_groups=True)
        self.pass_time()
        for name, groups in self.groups.items():
            self.upsert(name, range(max(groups) + 1, max(groups) + 80))
        self.append(100)
        self.pass_time()

    def change(self, name: str, *, keeps_groups: bool) -> None:
        groups = self.groups[name]
        members: dict[int | None, list[int]] = {}
        for key, group in groups.items():
            members.setdefault(group, []).append(key)
        ended = [] if keeps_groups else self.draw.sample(sorted(members.keys() - {None}), 20)
        gone = {key for group in ended for key in members.pop(group)}
        large = [keys for keys in members.values() if len(keys) > 3]
        gone |= {keys[0] for keys in large[:40]}
        changed = [keys[1] for keys in large[20:80]]
        self.db.sql(f"DELETE FROM {name} WHERE k IN ({', '.join(map(str, gone))})")
        for key in gone:
            del groups[key]
        self.upsert(name, changed[:20])
        self.upsert(name, [*range(max(groups) + 1, max(groups) + len(gone) + 1), *changed])

    def pass_time(self) -> None:
        self.now += HOUR // 3
        self.db.flush()

    def samples_until_found(self, defect: str) -> int:
        """Reconcile in the background's way until something is found; return the samples."""
        reconciler = Reconciler(self.db.parts.reconciling, budget=1.0, processors=1)
        ledger = self.db.parts.ledger
        known, before = len(ledger.evidence.found()), self.samples()
        while len(ledger.evidence.found()) == known:
            assert reconciler.turn() != reconciler.idle, f"every slice was compared: {defect}"
        return self.samples() - before

    def samples(self) -> int:
        return sum(each.samples for each in comparing.rounds_of(self.db.parts.ledger).values())

    def slices(self) -> int:
        """The number of samples by which a defect is found for certain: all of a round."""
        reconciling = self.db.parts.reconciling
        state = self.db.parts.reader.published
        return sum(2 * each.slices for each in reconciling.rounds(state).values())


def _reads(query: str, relation: str) -> bool:
    return re.search(rf"(FROM|JOIN) {relation}\b", query) is not None


def _timestamp(micros: int):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(micros / 1e6, UTC)


def test_there_are_enough_defects_and_each_is_in_the_code() -> None:
    defects = list(itertools.chain.from_iterable(DEFECTS.values()))
    assert len(defects) >= 40
    assert set(Counter(defect.name for defect in defects).values()) == {1}
    for defect in defects:
        assert defect.sound != defect.wrong
        code_of(defect)


@pytest.mark.long
@pytest.mark.parametrize("view", DEFECTS)
def test_reconciliation_finds_each_defect_and_repairs_what_it_did(tmp_path, spark, view, capsys):
    found = _find(History(tmp_path / "db", spark, view), DEFECTS[view])
    with capsys.disabled():
        print()
        for name, (samples, bound) in found.items():
            print(f"{samples:4} of {bound:3} samples | {name}")


def _find(history: History, defects) -> dict[str, tuple[int, int]]:
    """Return for each defect the samples until it was found, and those of all slices."""
    found, db = {}, history.db
    try:
        for defect in defects:
            bound = history.slices()
            with active(db, defect):
                history.go_on(keeps_groups=defect.keeps_groups)
            samples = history.samples_until_found(defect.name)
            assert samples <= bound, defect.name
            found[defect.name] = (samples, bound)
            verdicts = [row[-1] for row in db.sql("VERIFY").fetchall()]
            if verdicts != ["equal to batch"]:  # as is a table that it reads
                db.sql("RECONCILE ALL SAMPLE 100 PERCENT")
                verdicts = [row[-1] for row in db.sql("VERIFY").fetchall()]
            if verdicts == ["stopped"]:  # the operators' own checks have noticed it as well
                db.sql("REPAIR")
                verdicts = [row[-1] for row in db.sql("VERIFY").fetchall()]
            assert verdicts == ["equal to batch"], defect.name
    finally:
        db.close()
    return found
