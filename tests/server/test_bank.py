"""The bank over HTTP: in no answer, and after no epoch that is followed, is money made or lost."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING

import headrace
from bank import SCHEMA, Bank, append, pull
from length import choose
from served import Events, Replica, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from bank import Transfer
    from served import Client

ROUNDS = choose(6, 60)


def send(client: Client, made: list[list[Transfer]], seed: int) -> None:
    """Append batches, each with a key, and some of them twice."""
    rng = random.Random(seed)
    for number, rows in enumerate(made):
        for _ in range(rng.choice((1, 1, 2))):
            append(client, rows, f"{seed}-{number}")


def test_the_total_is_nothing_in_every_answer(tmp_path: Path, spark: SparkSession):
    with (
        headrace.connect(tmp_path / "db", spark=spark, partitions=PARTITIONS) as database,
        served(database) as running,
    ):
        client = running.client
        assert client.sql(SCHEMA).status == 200
        bank = Bank.random(11, 2 * ROUNDS)
        pushed, replica, goal = [], Replica(), []

        def follow() -> None:
            with Events(client, view="balances") as events:
                for event in events:
                    if replica.take(event):
                        rows = [json.loads(row) for row in replica.rows.elements()]
                        pushed.append(sum(row["balance"] for row in rows))
                    if goal and replica.epoch >= goal[0]:
                        return

        following = threading.Thread(target=follow)
        following.start()
        pulled = []
        for number in range(ROUNDS):
            part = bank.batches[number::ROUNDS]
            writer = threading.Thread(target=send, args=(client, part, number))
            writer.start()
            pulled += pull(client)
            writer.join()
        goal.append(client.sql("FLUSH").json["epoch"])
        following.join()
        assert len(pulled) >= ROUNDS
        assert len(pushed) > 3
        assert set(pulled) == set(pushed) == {0}
        found = client.rows("SELECT account, balance FROM balances")
        assert dict(map(tuple, found)) == bank.balances()
