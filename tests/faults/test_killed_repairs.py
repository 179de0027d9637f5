"""A server is killed again and again while slices are invalidated, corrected, replayed and compared.

What was acknowledged stays: rows, corrections, and dirty entries that nobody has asked to repair.
After each kill every view equals its query, and reconciliation never finds a row that differs.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from killed_server import GONE, killed
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from killed_server import Killed
    from served import Answer

KILLS = choose(3, 10)
SIZE = 40
GROUPS = 12
SCHEMA = """
CREATE STREAM sales (id BIGINT, g INT, x BIGINT);
CREATE MATERIALIZED VIEW totals AS SELECT g, count(*) AS n, sum(x) AS x FROM sales GROUP BY g;
CREATE MATERIALIZED VIEW counts AS SELECT n, count(*) AS groups FROM totals GROUP BY n;
CREATE MATERIALIZED VIEW most AS SELECT g % 3 AS h, max(x) AS x FROM sales GROUP BY g % 3;
"""
MANUAL = {"HEADRACE_REPAIR": "manual", "HEADRACE_ON_DIFFERENCE": "report"}
RETRIED = {"conflict", "unavailable"}
"""The codes of errors after which a statement may be run again."""


@dataclass
class Work:
    """A writer, and somebody who says that rows are wrong, and has them repaired.

    ``owed`` are the slices that are dirty: acknowledged, and not asked to be repaired since.
    """

    server: Killed
    dice: random.Random
    sales: dict[int, tuple[int, int]] = field(default_factory=dict)
    owed: set[str] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)
    statements: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)

    def run(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._guarded, args=(call,))
            for call in (self._write, self._repair)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            while not self.done.is_set():
                call()
        except BaseException as error:
            self.failures.append(error)
            raise

    def _until_answered(self, ask: Callable[[], Answer]) -> Any:
        """Ask until the server has done it; what is asked may be done twice."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            with suppress(*GONE):
                answer = ask()
                if answer.status == 200:
                    return answer.json
                assert answer.error["code"] in RETRIED, answer.body
            time.sleep(0.1)
        raise AssertionError("the server does not come back")

    def _write(self) -> None:
        first = len(self.sales)
        rows = [
            {"id": first + i, "g": self.dice.randrange(GROUPS), "x": self.dice.randrange(100)}
            for i in range(SIZE)
        ]
        body = "".join(json.dumps(row) + "\n" for row in rows)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"{first}"}
        self._until_answered(
            lambda: self.server.client.ask("POST", "/v1/streams/sales", body, headers)
        )
        self.sales |= {row["id"]: (row["g"], row["x"]) for row in rows}
        time.sleep(0.1)

    def _repair(self) -> None:
        """Run one statement; its slice is owed once it is acknowledged, until it is repaired."""
        group = self.dice.randrange(GROUPS)
        slice_, what = f"g = {group}", self.dice.choice(sorted(_STATEMENTS))
        if what == "correct" and self.sales:
            self._correct(self.dice.randrange(len(self.sales)), self.dice.randrange(100))
        elif what != "correct":
            if what in {"replay", "repair"}:
                self.owed -= {slice_} if what == "replay" else set(self.owed)
            with suppress(*GONE):
                answer = self.server.client.sql(_STATEMENTS[what].format(slice_))
                if answer.status != 200:
                    assert answer.error["code"] in RETRIED, answer.body
                    return
                if what == "invalidate":
                    self.owed.add(slice_)
                if what == "reconcile":
                    assert {row[2] for row in answer.json["rows"]} == {0}, answer.json
        self.statements[what] += 1
        self.require_dirty()

    def _correct(self, id_: int, x: int) -> None:
        text = f"CORRECT STREAM sales REPLACE SET x = {x} WHERE id = {id_} BECAUSE 'it was wrong'"
        self._until_answered(lambda: self.server.client.sql(text))
        self.sales[id_] = (self.sales[id_][0], x)

    def wait_for(self, statements: int) -> None:
        """Wait until some more statements have been run."""
        wanted = self.statements.total() + statements
        while self.statements.total() < wanted and not self.failures:
            time.sleep(0.01)

    def require_dirty(self) -> None:
        """Fail if an entry that is owed is not there."""
        text = "SELECT condition FROM information_schema.dirty WHERE table_name = 'totals'"
        found = self._until_answered(lambda: self.server.client.sql(text))
        assert self.owed <= {row[0] for row in found["rows"]}

    def totals(self) -> dict[int, tuple[int, int]]:
        """Return the count and the sum of each group."""
        found: dict[int, tuple[int, int]] = {}
        for group, x in self.sales.values():
            count, total = found.get(group, (0, 0))
            found[group] = (count + 1, total + x)
        return found


_STATEMENTS = {
    "invalidate": "INVALIDATE VIEW totals WHERE {} BECAUSE 'somebody says so'",
    "correct": "",
    "replay": "REPLAY VIEW totals WHERE {}",
    "repair": "REPAIR VIEW totals",
    "reconcile": "RECONCILE VIEW totals",
}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_server_that_is_killed_while_it_repairs_loses_nothing(tmp_path: Path) -> None:
    dice = random.Random(11)
    with killed(tmp_path / "db", MANUAL) as server:
        assert server.client.sql(SCHEMA).status == 200
        work = Work(server, random.Random(12))
        threads = work.run()
        while server.deaths < KILLS and not work.failures:
            work.wait_for(dice.randrange(2, 8))
            time.sleep(dice.uniform(0, 1))
            server.kill()
            server.start()
        work.wait_for(3)
        work.done.set()
        for thread in threads:
            thread.join()
        assert work.failures == []
        assert len(work.statements) > 1, "nothing was done between the kills"
        work.require_dirty()
        client = server.client
        assert client.sql("FLUSH").status == 200
        found = {g: (n, x) for g, n, x in client.rows("SELECT g, n, x FROM totals")}
        assert found == work.totals()
        assert {row[-1] for row in client.rows("VERIFY")} == {"equal to batch"}
        assert client.rows("SHOW EVIDENCE") == []
        assert client.sql("REPAIR").status == 200
        assert client.rows("SHOW DIRTY") == []
        assert {row[-1] for row in client.rows("VERIFY")} == {"equal to batch"}
