"""Random histories of a stream that loses its oldest events: every view is right by its own terms.

What is written is kept in plain Python. A view is its query over all events since it began, as they
are after the corrections that reached them; nothing that is asked for may show anything else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from length import choose

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400_000_000
QUERIES = {
    "sums": "SELECT k, sum(v) AS x FROM s GROUP BY k",
    "most": "SELECT k, max(v) AS x FROM s GROUP BY k",
    "each": "SELECT k, v AS x FROM s",
    "late": "SELECT k, count(*) AS x FROM s GROUP BY k",
}
LAGS = {"late"}


@dataclass
class Event:
    """An event at its offset: its day, and its row as it is now; None if it is void."""

    offset: int
    day: int
    row: tuple[int, int] | None


@dataclass
class History:
    """A database, all events ever, and the offset at which each view began."""

    directory: Path
    spark: object
    random: Random
    day: int = 100
    events: list[Event] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    shown: dict[str, Counter[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the database, with a stream whose events are kept for ten days."""
        self.open()
        self.db.sql(
            "CREATE STREAM s (k INT, v INT, at TIMESTAMP, WATERMARK FOR at AS at)"
            " DEDUPLICATE ON (k, v, at) WITH (retention = '10 days')"
        )
        for name in QUERIES:
            self.create(name)

    def open(self) -> None:
        """Open the database, again if it is open."""
        self.db = headrace.connect(
            self.directory,
            spark=self.spark,
            continuous=False,
            partitions=2,
            clock=lambda: self.day * DAY,
        )

    @property
    def start(self) -> int:
        """The first offset that is kept."""
        ledger = self.db.parts.ledger
        return ledger.head.starts[self.db.parts.reader.catalog.resolve("s").id]

    def create(self, name: str) -> None:
        """Create a view anew, over what is left."""
        options = "since = 'earliest'" + (", refresh = 'manual'" if name in LAGS else "")
        self.db.sql(f"DROP MATERIALIZED VIEW IF EXISTS {name}")
        self.db.compact()  # as in a correction
        begun = self.start
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} WITH ({options}) AS {QUERIES[name]}")
        self.begun[name] = begun
        self.shown[name] = self.expected(name)

    def expected(self, name: str) -> Counter[tuple[int, int]]:
        """Return the rows of a view that has read everything."""
        rows = [e.row for e in self.events if e.offset >= self.begun[name] and e.row is not None]
        if name == "each":
            return Counter(rows)
        values: dict[int, list[int]] = {}
        for key, value in rows:
            values.setdefault(key, []).append(value)
        fold = {"sums": sum, "most": max, "late": len}[name]
        return Counter({(key, fold(found)): 1 for key, found in values.items()})

    def append(self) -> None:
        """Append some events, most of them recent."""
        end = self.db.parts.ledger.head.log_end(self.db.parts.reader.catalog.resolve("s").id)
        new = {}
        for _ in range(self.random.randint(1, 4)):
            day = self.day - self.random.choice([0, 0, 1, 3, 12])
            row = self.random.randint(0, 3), self.random.randint(0, 99)
            if not any(e.day == day and e.row == row for e in self.events):
                new[(*row, day)] = (day, row)
        if not new:
            return
        listed = ", ".join(
            f"({row[0]}, {row[1]}, timestamp_micros({day * DAY}))" for day, row in new.values()
        )
        said = self.db.sql(f"INSERT INTO s SELECT * FROM VALUES {listed}").message
        assert said is not None
        taken = int(said.split()[0])
        assert taken <= len(new)
        if taken == len(new):
            for place, (day, row) in enumerate(new.values()):
                self.events.append(Event(end + place, day, row))
        else:  # an id of before a correction is known still: which ones were taken is asked
            text = f"SELECT k, v, CAST(unix_micros(at) / {DAY} AS INT), ROWOFFSET FROM s"
            for key, value, day, offset in self.db.sql(text).fetchall():
                if offset >= end:
                    self.events.append(Event(offset, day, (key, value)))

    def correct(self) -> None:
        """Replace or void events; only those that are kept can be."""
        self.db.compact()  # what can be retired is, and not while the statement runs
        key = self.random.randint(0, 3)
        void, start = self.random.random() < 0.5, self.start
        how = "VOID" if void else "REPLACE SET v = v + 1000"
        self.db.sql(f"CORRECT STREAM s {how} WHERE k = {key} AND v < 50 BECAUSE 'x'")
        for event in self.events:
            if event.offset < start or event.row is None:
                continue
            if event.row[0] == key and event.row[1] < 50:
                event.row = None if void else (key, event.row[1] + 1000)

    def pass_days(self) -> None:
        """Have some days pass, and what is old be retired."""
        self.day += self.random.randint(1, 6)
        self.db.flush()
        self.db.compact()

    def refresh(self) -> None:
        """Refresh what lags behind."""
        self.db.sql("REFRESH late")
        self.shown["late"] = self.expected("late")

    def replay(self) -> None:
        """Recompute a slice of a view, or all of it: it is refused, or nothing changes."""
        name = self.random.choice(list(QUERIES))
        where = self.random.choice(["", " WHERE k = 1", " WHERE x > 500"])
        refused: HeadraceError | None = None
        try:
            said = self.db.sql(f"REPLAY VIEW {name}{where}").message
        except HeadraceError as error:
            refused = error
        if refused is None:
            assert said is not None
            assert said.startswith("0 rows"), said
        else:
            assert refused.code is Code.CONFLICT, refused
            assert "no longer kept" in refused.primary
            assert self.begun[name] < self.start

    def restart(self) -> None:
        """Close and open the database."""
        self.db.close()
        self.open()

    def again(self) -> None:
        """Create a view again, over what is left."""
        self.create(self.random.choice(list(QUERIES)))

    def check(self) -> None:
        """Compare every view, the stream itself and the verdicts with what was written."""
        for name in QUERIES:
            if name not in LAGS:
                self.shown[name] = self.expected(name)
            found = Counter(self.db.sql(f"SELECT k, x FROM {name}").fetchall())
            assert found == self.shown[name], name
        kept = Counter(e.row for e in self.events if e.offset >= self.start and e.row is not None)
        assert Counter(self.db.sql("SELECT k, v FROM s").fetchall()) == kept
        for name, _, different, verdict in self.db.sql("VERIFY").fetchall():
            assert different == 0, (name, verdict)
            unchecked = verdict.startswith("could not be checked")
            assert unchecked == (self.begun[name] < self.start), (name, verdict)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(choose(3, 20)))
def test_views_over_a_log_that_is_cut_are_right_by_their_own_terms(
    tmp_path: Path, spark, seed: int
) -> None:
    history = History(tmp_path / "d", spark, Random(seed))
    # Views that keep less are rebuilt before the first correction, while the log has all events.
    history.append()
    history.db.sql("CORRECT STREAM s REPLACE SET v = v WHERE true BECAUSE 'it may be corrected'")
    steps = [history.append] * 5 + [history.correct, history.pass_days, history.pass_days] * 2
    steps += [history.refresh, history.replay, history.replay, history.restart, history.again]
    for _ in range(12):
        for step in history.random.sample(steps, 4):
            step()
        history.check()
    history.refresh()
    history.db.compact()
    assert history.start > 0
    history.db.close()
