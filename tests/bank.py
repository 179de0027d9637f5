"""A bank: transfers out of order and sent twice. Its total is 0 in whatever is read at one epoch."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from served import Client

Transfer: TypeAlias = dict[str, int]
SIZE = 10
"""How many transfers a batch has."""
SCHEMA = """
CREATE STREAM transfers (id BIGINT, source INT, target INT, amount BIGINT) DEDUPLICATE ON (id);
CREATE MATERIALIZED VIEW debits AS SELECT source AS account, sum(amount) AS amount FROM transfers GROUP BY source;
CREATE MATERIALIZED VIEW credits AS SELECT target AS account, sum(amount) AS amount FROM transfers GROUP BY target;
CREATE MATERIALIZED VIEW balances AS
  SELECT account, sum(amount) AS balance FROM (
    SELECT account, amount FROM credits UNION ALL SELECT account, -amount FROM debits) GROUP BY account;
CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS total FROM balances;
"""


@dataclass(frozen=True)
class Bank:
    """Transfers between accounts, a third of them sent twice, in batches in any order."""

    accounts: int
    batches: list[list[Transfer]]

    @classmethod
    def random(cls, seed: int, batches: int, accounts: int = 8) -> Bank:
        rng = random.Random(seed)
        every = [
            {
                "id": number,
                "source": rng.randrange(accounts),
                "target": rng.randrange(accounts),
                "amount": rng.randrange(1, 1000),
            }
            for number in range(batches * SIZE)
        ]
        sent = every + rng.sample(every, len(every) // 3)
        rng.shuffle(sent)
        return cls(accounts, [sent[at : at + SIZE] for at in range(0, len(sent), SIZE)])

    def balances(self) -> dict[int, int]:
        """Return the balance of each account when all has arrived."""
        every = {row["id"]: row for rows in self.batches for row in rows}
        found = dict.fromkeys(range(self.accounts), 0)
        for row in every.values():
            found[row["source"]] -= row["amount"]
            found[row["target"]] += row["amount"]
        return found


def append(client: Client, rows: list[Transfer], key: str) -> None:
    """Append a batch with an idempotency key; it is durable when this returns."""
    answer = client.ask(
        "POST",
        "/v1/streams/transfers",
        "".join(json.dumps(row) + "\n" for row in rows),
        {"Content-Type": "application/x-ndjson", "Idempotency-Key": key},
    )
    assert answer.status == 200, answer.body


def pull(client: Client) -> list[int]:
    """Return what should be 0: the total, and all credits less all debits of one epoch."""
    total = client.get("/v1/views/total")
    assert total.status == 200, total.body
    epoch = total.json["epoch"]
    both = [client.get(f"/v1/views/{v}", as_of_epoch=epoch) for v in ("credits", "debits")]
    credits_, debits = (sum(amount for _, amount in each.json["rows"]) for each in both)
    return [*(row[0] or 0 for row in total.json["rows"]), credits_ - debits]
