"""A loader that is killed: it writes the same batches at every start, each taking effect once.

``loader.py DIRECTORY BATCHES [STAGE NTH]`` prints ``ready`` once it is open, checks every view,
loads, and prints the totals. With a stage it kills itself, as ``kill -9`` does, when that stage is
reached for the NTH time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from killing import dying, joined

from headrace.interfaces.database import Database
from headrace.interfaces.settings import Settings

ROWS = 40
DEFINITIONS = """
CREATE STREAM IF NOT EXISTS payments (id INT, account INT, amount DECIMAL(10,2));
CREATE TABLE IF NOT EXISTS accounts (account INT PRIMARY KEY, owner STRING);
CREATE TABLE IF NOT EXISTS notes (account INT, note STRING);
CREATE MATERIALIZED VIEW IF NOT EXISTS balances AS
  SELECT account, count(*) AS payments, sum(amount) AS total FROM payments GROUP BY account;
CREATE MATERIALIZED VIEW IF NOT EXISTS owned AS
  SELECT p.id, p.amount, a.owner FROM payments p JOIN accounts a ON p.account = a.account;
CREATE MATERIALIZED VIEW IF NOT EXISTS owners AS
  SELECT owner, count(*) AS payments, sum(amount) AS total FROM owned GROUP BY owner
  HAVING count(*) > 3;
"""
LATE = """
CREATE MATERIALIZED VIEW IF NOT EXISTS late AS
  SELECT owner, account, count(*) AS n FROM payments JOIN accounts USING (account)
  GROUP BY owner, account
"""


def main() -> None:
    """Load, or die at the stage that is asked for."""
    directory, batches = Path(sys.argv[1]), int(sys.argv[2])
    # At every other start, steps of payments are wide: epochs of notes are made beside them.
    small = 60 if batches % 2 else 20
    settings = Settings.of({"partitions": 2, "small_rows": small, "epoch_rows": 200})
    with Database(directory, settings, joined(), fault=dying(sys.argv[3:])) as db:
        print("ready", flush=True)
        db.sql(DEFINITIONS)
        check(db)
        for batch in range(batches):
            payments = [
                {"id": i, "account": i % 7, "amount": f"{i % 100}.{i % 10}5"}
                for i in range(batch * ROWS, (batch + 1) * ROWS)
            ]
            db.insert("payments", rows(payments), producer="payments", sequence=batch)
            accounts = [{"account": (batch + k) % 9, "owner": f"owner-{batch % 5}"} for k in (0, 1)]
            db.insert("accounts", accounts, producer="accounts", sequence=batch)
            db.insert("notes", [(batch % 3, "seen")], producer="notes", sequence=batch)
            print("batch", batch, flush=True)
        db.sql(LATE)
        db.flush()
        check(db)
        total = db.sql("SELECT count(*) AS n, count(DISTINCT id) AS d, sum(id) AS s FROM payments")
        counted = db.sql("SELECT sum(payments) FROM balances").fetchall()[0][0]
        stored = db.sql("SELECT count(*) FROM notes").fetchall()[0][0]
        print(json.dumps([*(int(v) for v in total.fetchall()[0]), int(counted), stored]))


def rows(payments: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rows with exact amounts."""
    from decimal import Decimal

    return [{**row, "amount": Decimal(str(row["amount"]))} for row in payments]


def check(db: Database) -> None:
    """Fail unless every view equals its query over canonical history."""
    wrong = [row for row in db.verify() if row[3] != "equal to batch"]
    if wrong:
        print("WRONG", wrong, flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
