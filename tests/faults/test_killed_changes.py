"""A server is killed again and again while views are altered, compared, swapped and rolled back.

After each kill all views equal their queries, at three levels; no read fails but for the server's
absence; a subscriber of a view whose columns stay resumes by its token and has exactly its rows.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from killed_server import GONE, killed
from length import choose
from served import Events, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from killed_server import Killed

KILLS = choose(3, 15)
SIZE = 20
SCHEMA = """
CREATE STREAM sales (id BIGINT, g INT, x BIGINT);
CREATE MATERIALIZED VIEW totals AS SELECT g, count(*) AS n, sum(x) AS x FROM sales GROUP BY g;
CREATE MATERIALIZED VIEW whole AS SELECT * FROM totals;
CREATE MATERIALIZED VIEW counts AS SELECT n % 5 AS n, count(*) AS groups FROM totals GROUP BY n % 5;
CREATE MATERIALIZED VIEW top AS
SELECT w.g, c.groups FROM whole w JOIN counts c ON w.n % 5 = c.n;
"""
VIEWS = ("totals", "whole", "counts", "top")
QUERIES = (
    "SELECT g, count(*) AS n, sum(x) AS x FROM sales GROUP BY g",
    "SELECT g, count(*) AS n, sum(x) AS x FROM sales WHERE x % 2 = 0 GROUP BY g",
    "SELECT g, count(*) AS n, sum(x) AS x, max(x) AS most FROM sales GROUP BY g",
    "SELECT count(*) AS n, sum(x) AS x, g, min(x) AS least FROM sales WHERE g > 1 GROUP BY g",
)
ALTER = "ALTER MATERIALIZED VIEW totals {}AS {}"
MADE = [
    *("SHOW DIFF totals", "VALIDATE VIEW totals", "SWAP VIEW totals", "ROLLBACK VIEW totals"),
    *("SWAP VIEW totals", "VALIDATE VIEW totals SAMPLE 50 PERCENT", "DROP CANDIDATE OF totals"),
]
"""What is done with a candidate."""
STATEMENTS = [
    statement
    for query, other in zip(QUERIES, (*QUERIES[2:], *QUERIES[:2]), strict=True)
    for statement in (
        ALTER.format("WITH (auto_swap = false) ", query),
        *MADE,
        ALTER.format("", other),
        "REBUILD VIEW totals WITH DEPENDANTS",
    )
]


REFUSED = {"unavailable", "conflict", "invalid"}
"""The codes of what a statement that changes views may be answered."""
PATIENCE = 300
"""Seconds: on a busy machine Spark takes a minute to start after a kill."""


@dataclass
class Changes:
    """A writer, one who changes views, a reader and a subscriber."""

    server: Killed
    dice: random.Random
    rows: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    statements: Counter[str] = field(default_factory=Counter)
    next: Iterator[str] = field(default_factory=lambda: cycle(STATEMENTS))
    replica: Replica = field(default_factory=Replica)
    failures: list[BaseException] = field(default_factory=list)

    def run(self) -> list[threading.Thread]:
        calls = (self._write, self._change, self._read, self._follow)
        threads = [threading.Thread(target=self._guarded, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            while not self.done.is_set():
                with suppress(*GONE):
                    call()
                time.sleep(0.05)
        except BaseException as error:
            self.failures.append(error)
            raise

    def _write(self) -> None:
        rows = [
            {"id": self.rows + i, "g": (self.rows + i) % 12, "x": (self.rows + i) * 7 % 100}
            for i in range(SIZE)
        ]
        body = "".join(json.dumps(row) + "\n" for row in rows)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"{self.rows}"}
        answer = self.server.client.ask("POST", "/v1/streams/sales", body, headers)
        if answer.status == 200:
            self.rows += SIZE
        else:
            assert answer.error["code"] == "unavailable", answer.body

    def _change(self) -> None:
        statement = next(self.next)
        answer = self.server.client.sql(statement, timeout=PATIENCE)
        what = statement.split("totals")[0].strip()
        if answer.status == 200:
            self.statements[what] += 1
            if what.startswith("VALIDATE"):
                assert answer.json["rows"][0][3] == "equal to batch", answer.json
            return
        # A statement that a kill has cut off may have been done, or not.
        assert answer.error["code"] in REFUSED, answer.body
        self.statements["refused"] += 1

    def _read(self) -> None:
        """Read a view; it may never be missing, and only the server may."""
        name = self.dice.choice(VIEWS)
        answer = self.server.client.sql(f"SELECT count(*) FROM {name}", timeout=PATIENCE)
        assert answer.status == 200 or answer.error["code"] == "unavailable", answer.body

    def _follow(self) -> None:
        with Events(self.server.client, self.replica.token, view="counts") as events:
            for event in events:
                if event.kind == "error":
                    assert event.data["error"]["code"] == "unavailable", event
                    return
                self.replica.take(event)
                if self.done.is_set():
                    return

    def wait_for(self, statements: int) -> None:
        """Wait until some more statements have been answered."""
        wanted = self.statements.total() + statements
        while self.statements.total() < wanted and not self.failures:
            time.sleep(0.01)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_server_that_is_killed_while_views_are_changed_stays_right(tmp_path: Path) -> None:
    dice = random.Random(21)
    with killed(tmp_path / "db") as server:
        assert server.client.sql(SCHEMA).status == 200
        work = Changes(server, random.Random(22))
        threads = work.run()
        while server.deaths < KILLS and not work.failures:
            work.wait_for(dice.randrange(1, 8))
            time.sleep(dice.uniform(0, 1.5))
            server.kill()
            server.start()
        work.wait_for(12)
        work.done.set()
        client = server.client
        # The subscriber waits for an event.
        assert client.sql("INSERT INTO sales VALUES (-1, 3, 1)").status == 200
        for thread in threads:
            thread.join()
        assert work.failures == []
        assert len(work.statements) > 5, "nothing was done between the kills"
        assert client.sql("FLUSH").status == 200
        assert {row[-1] for row in client.rows("VERIFY")} == {"equal to batch"}
        _require_same(work.replica, server)
        client.sql("DROP CANDIDATE OF totals")
    with closing(sqlite3.connect(tmp_path / "db" / "ledger.db")) as ledger:
        left = ledger.execute("SELECT name FROM objects WHERE dropped_epoch IS NULL").fetchall()
    assert sorted(name for (name,) in left) == ["counts", "sales", "top", "totals", "whole"]


def _require_same(replica: Replica, server: Killed) -> None:
    """Follow until the present; the rows must be those of the view."""
    epoch = server.client.sql("FLUSH").json["epoch"]
    with Events(server.client, replica.token, view="counts") as events:
        for event in events:
            replica.take(event)
            if replica.epoch >= epoch:
                break
    found = Counter(
        json.dumps({"n": n, "groups": groups}, sort_keys=True)
        for n, groups in server.client.rows("SELECT n, groups FROM counts")
    )
    assert replica.rows == found
