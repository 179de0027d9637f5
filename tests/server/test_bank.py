"""The bank: transfers out of order and sent twice; in no answer is money made or lost."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING

import headrace
from length import choose
from served import Events, Replica, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from served import Client

ACCOUNTS = 8
ROUNDS = choose(3, 30)
BATCHES = ROUNDS * 4
SIZE = 10
SCHEMA = """
CREATE STREAM transfers (id BIGINT, source INT, target INT, amount BIGINT) DEDUPLICATE ON (id);
CREATE MATERIALIZED VIEW debits AS SELECT source AS account, sum(amount) AS amount FROM transfers GROUP BY source;
CREATE MATERIALIZED VIEW credits AS SELECT target AS account, sum(amount) AS amount FROM transfers GROUP BY target;
CREATE MATERIALIZED VIEW balances AS
  SELECT account, sum(amount) AS balance FROM (
    SELECT account, amount FROM credits UNION ALL SELECT account, -amount FROM debits) GROUP BY account;
CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS total FROM balances;
"""


def batches(rng: random.Random) -> list[list[dict[str, int]]]:
    """Return transfers shuffled, a third of them twice, in batches of which some are repeated."""
    every = [
        {
            "id": number,
            "source": rng.randrange(ACCOUNTS),
            "target": rng.randrange(ACCOUNTS),
            "amount": rng.randrange(1, 1000),
        }
        for number in range(BATCHES * SIZE)
    ]
    sent = every + rng.sample(every, len(every) // 3)
    rng.shuffle(sent)
    return [sent[at : at + SIZE] for at in range(0, len(sent), SIZE)]


def send(client: Client, made: list[list[dict[str, int]]], seed: int) -> None:
    """Append batches, each with a key, and some of them twice."""
    rng = random.Random(seed)
    for number, rows in enumerate(made):
        for _ in range(rng.choice((1, 1, 2))):
            answer = client.ask(
                "POST",
                "/v1/streams/transfers",
                "".join(json.dumps(row) + "\n" for row in rows),
                {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"{seed}-{number}"},
            )
            assert answer.status == 200, answer.body


def pull(client: Client) -> list[int]:
    """Return what should be nothing: the total, and all credits less all debits of one epoch."""
    total = client.get("/v1/views/total").json
    epoch = total["epoch"]
    both = [client.get(f"/v1/views/{v}", as_of_epoch=epoch) for v in ("credits", "debits")]
    credits_, debits = (sum(amount for _, amount in each.json["rows"]) for each in both)
    return [*(row[0] or 0 for row in total["rows"]), credits_ - debits]


def test_the_total_is_nothing_in_every_answer(tmp_path: Path, spark: SparkSession):
    rng = random.Random(11)
    with (
        headrace.connect(tmp_path / "db", spark=spark, partitions=PARTITIONS) as database,
        served(database) as running,
    ):
        client = running.client
        assert client.sql(SCHEMA).status == 200
        made = batches(rng)
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
        for number in range(2 * ROUNDS):
            part = made[number :: 2 * ROUNDS]
            writer = threading.Thread(target=send, args=(client, part, number))
            writer.start()
            pulled += pull(client)
            writer.join()
        goal.append(client.sql("FLUSH").json["epoch"])
        following.join()
        assert len(pulled) >= 2 * ROUNDS
        assert len(pushed) > 3
        assert set(pulled) == set(pushed) == {0}
        every = {row["id"]: row for rows in made for row in rows}
        expected = dict.fromkeys(range(ACCOUNTS), 0)
        for row in every.values():
            expected[row["source"]] -= row["amount"]
            expected[row["target"]] += row["amount"]
        assert dict(map(tuple, client.rows("SELECT account, balance FROM balances"))) == expected
