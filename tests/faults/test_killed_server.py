"""The bank's server is killed again and again; its clients go on with what they have seen."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from bank import SCHEMA, Bank, append, pull
from killed_server import GONE, killed
from length import choose
from served import Events, Replica

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from killed_server import Killed

KILLS = choose(3, 12)
BATCHES = KILLS * 20


@dataclass
class Clients:
    """A writer, a reader and a subscriber, which try again when the server is gone."""

    server: Killed
    bank: Bank
    pulled: list[int] = field(default_factory=list)
    pushed: dict[int, int] = field(default_factory=dict)
    """The sum of the balances that were followed, by epoch."""
    compared: list[int] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    replica: Replica = field(default_factory=Replica)
    written: threading.Event = field(default_factory=threading.Event)
    goal: int | None = None

    def run(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._guarded, args=(each,))
            for each in (self._write, self._pull, self._follow)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self.failures.append(error)
            raise

    def _again(self, call: Callable[[], Any]) -> Any:
        """Call until the server has answered."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            with suppress(*GONE):
                return call()
            time.sleep(0.1)
        raise AssertionError("the server does not come back")

    def _write(self) -> None:
        for number, rows in enumerate(self.bank.batches):
            self._again(
                lambda rows=rows, number=number: append(self.server.client, rows, f"{number}")
            )
            time.sleep(0.05)
        self.goal = self._again(lambda: self.server.client.sql("FLUSH").json["epoch"])
        self.written.set()

    def _pull(self) -> None:
        while not self.written.is_set():
            self.pulled += self._again(lambda: pull(self.server.client))

    def _follow(self) -> None:
        while self.goal is None or self.replica.epoch < self.goal:
            self._again(self._follow_once)

    def _follow_once(self) -> None:
        """Follow the balances from the last token, until the server is gone or all was followed."""
        with Events(self.server.client, self.replica.token, view="balances") as events:
            assert events.answer.status == 200, events.answer.read()
            for event in events:
                if self.replica.take(event):
                    rows = [json.loads(row) for row in self.replica.rows.elements()]
                    self.pushed[self.replica.epoch] = sum(row["balance"] for row in rows)
                    self._compare()
                if self.goal is not None and self.replica.epoch >= self.goal:
                    return

    def _compare(self) -> None:
        """Compare what was followed with the snapshot of the same epoch."""
        epoch = self.replica.epoch
        answer = self._again(
            lambda: self.server.client.get("/v1/views/balances", as_of_epoch=epoch).json
        )
        read = sorted((row[0], row[1]) for row in answer["rows"])
        rows = [json.loads(row) for row in self.replica.rows.elements()]
        assert sorted((row["account"], row["balance"]) for row in rows) == read, epoch
        self.compared.append(epoch)


@pytest.mark.long
def test_no_client_sees_money_made_or_lost_while_the_server_is_killed(tmp_path: Path):
    rng = random.Random(5)
    with killed(tmp_path / "db") as server:
        assert server.client.sql(SCHEMA).status == 200
        clients = Clients(server, Bank.random(5, BATCHES))
        threads = clients.run()
        while server.deaths < KILLS and not clients.written.is_set():
            clients.written.wait(rng.uniform(0.5, 6))
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
        assert clients.failures == []
        assert server.deaths >= 1
        assert set(clients.pulled) == {0}
        assert set(clients.pushed.values()) == {0}
        assert set(clients.compared) == set(clients.pushed)
        found = server.client.rows("SELECT account, balance FROM balances")
        assert dict(map(tuple, found)) == clients.bank.balances()
        verdicts = server.client.rows("VERIFY")
        assert {row[2] for row in verdicts} == {0}, verdicts
